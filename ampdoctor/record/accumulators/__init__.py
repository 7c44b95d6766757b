"""Totals that the training's own code keeps in half: averages of weights, running losses, gradients added by hand.

Now and then one step's operations are looked at for sums into such a total, outside of autograd: did they change it?
"""
