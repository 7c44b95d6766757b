"""The end of `ampdoctor attach` that is inside the training process.

A thread of ours listens to whoever attached, and schedules; the training's own thread does the rest, between two steps.
"""
