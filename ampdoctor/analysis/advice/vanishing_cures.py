"""What to do about gradients that fade away with depth, as code for the run at hand."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ampdoctor.finding import Fix

if TYPE_CHECKING:
    from ampdoctor.analysis.backward.layer_gradients import Depth
    from ampdoctor.trace.run import Run

SATURATING = ("Sigmoid", "Tanh", "Hardsigmoid", "Hardtanh", "Softsign", "LogSigmoid")
"""Modules of torch that are flat far from zero."""


def vanishing_cures(run: Run, depth: Depth) -> list[Fix]:
    """Return what keeps the gradient's size from layer to layer."""
    flat = [m for m in run.modules if m.type in SATURATING]
    what = f"{flat[0].type}: {len(flat)} modules" if flat else "saturating activations"
    activation = f"""\
for name, module in list(model.named_modules()):  # {what}
    if isinstance(module, (torch.nn.Sigmoid, torch.nn.Tanh)):
        model.set_submodule(name, torch.nn.ReLU())
for module in model.modules():
    if isinstance(module, (torch.nn.Linear, torch.nn.Conv2d)):
        torch.nn.init.kaiming_normal_(module.weight, nonlinearity="relu")"""
    init = f"""\
for module in model.modules():
    if isinstance(module, (torch.nn.Linear, torch.nn.Conv2d)):
        torch.nn.init.kaiming_normal_(module.weight, nonlinearity="relu")  # `{depth.layers[0].site}` and on"""
    residual = """\
def forward(self, x):
    for layer, norm in zip(self.layers, self.norms):  # norms: torch.nn.LayerNorm(width), one per layer
        x = x + layer(norm(x))
    return x"""
    first = (
        Fix(
            "Use activations that do not saturate, with their initialisation",
            activation,
            "The slope of a ReLU is 1 where it is not 0: the gradient keeps its size from layer to layer.",
        )
        if flat
        else Fix(
            "Initialise the weights so that each layer keeps the size of what goes through",
            init,
            "Values and gradients have the same size in every layer at the start.",
        )
    )
    return [
        first,
        Fix(
            "Add residual connections and normalisation",
            residual,
            "The gradient reaches the first layers past all the others, undiminished.",
        ),
    ]
