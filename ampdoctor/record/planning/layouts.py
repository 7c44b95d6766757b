"""Precision layouts: which numbers a training keeps, in which format. One entry is one layout."""

from __future__ import annotations

from dataclasses import dataclass, field

from ampdoctor.errors import AmpDoctorError

OPTIMIZER, GRADIENTS, WEIGHTS = "optimizer", "gradients", "weights"
"""What may be spread over the ranks of a world; the master copies go with the optimizer."""


@dataclass(frozen=True)
class Layout:
    """How a training keeps its numbers. Gradients have the dtype of the weights that they belong to, as torch asks.

    Attributes:
        name: what it is called.
        title: the same in a few words.
        weights: dtype of the parameters in the modules (torch's name).
        autocast: dtype that forward and loss run in under torch.autocast; None without it.
        master: the optimizer works on FP32 copies of the weights. It is handed FP32 copies of the gradients, all at
            once, which live for the time of its step.
        sharded: what each rank keeps only its part of; needs `master`.
    """

    name: str
    title: str
    weights: str = "float32"
    autocast: str | None = None
    master: bool = False
    sharded: frozenset[str] = field(default=frozenset())


_ENTRIES = (
    Layout("fp32", "everything in FP32, no autocast"),
    Layout("amp-fp16", "torch.autocast to FP16: weights, gradients and optimizer state stay FP32", autocast="float16"),
    Layout("amp-bf16", "torch.autocast to BF16: weights, gradients and optimizer state stay FP32", autocast="bfloat16"),
    Layout("pure-fp16", "everything in FP16, optimizer state too", weights="float16"),
    Layout("pure-bf16", "everything in BF16, optimizer state too", weights="bfloat16"),
    Layout("fp16-master", "FP16 weights and gradients; FP32 master copies and state", weights="float16", master=True),
    Layout("bf16-master", "BF16 weights and gradients; FP32 master copies and state", weights="bfloat16", master=True),
    Layout(
        "zero1", "bf16-master with master copies and optimizer state spread over ranks",
        weights="bfloat16", master=True, sharded=frozenset({OPTIMIZER}),
    ),
    Layout(
        "zero2", "zero1 with gradients spread too, each as soon as it is complete",
        weights="bfloat16", master=True, sharded=frozenset({OPTIMIZER, GRADIENTS}),
    ),
    Layout(
        "zero3", "zero2 with weights spread too, gathered module by module, without prefetching",
        weights="bfloat16", master=True, sharded=frozenset({OPTIMIZER, GRADIENTS, WEIGHTS}),
    ),
)  # fmt: skip

LAYOUTS = {layout.name: layout for layout in _ENTRIES}


def layouts_named(names: str) -> list[Layout]:
    """Return the layouts in a list like `fp32,amp-bf16`, each once.

    Raises:
        AmpDoctorError: there is no such layout; the hint lists those there are.
    """
    wanted = list(dict.fromkeys(name for part in names.split(",") if (name := part.strip().lower())))
    unknown = [name for name in wanted if name not in LAYOUTS]
    if unknown or not wanted:
        what = f"unknown layout {unknown[0]!r}" if unknown else "no layout was given"
        raise AmpDoctorError(what, hint="known layouts: " + ", ".join(LAYOUTS))
    return [LAYOUTS[name] for name in wanted]
