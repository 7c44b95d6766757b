"""What a training would need, per precision layout: one step on fake tensors, without a GPU and without allocating."""

from __future__ import annotations

import importlib
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from ampdoctor.errors import AmpDoctorError
from ampdoctor.report import plan as report
from ampdoctor.report.terminal import console, show

if TYPE_CHECKING:
    import argparse

    from ampdoctor.record.planning.result import Plan

LAYOUTS = "fp32,amp-fp16,amp-bf16,pure-bf16,fp16-master"


def add_plan_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of `ampdoctor memory plan`."""
    add: Any = parser.add_argument
    add(
        "target",
        metavar="TARGET",
        help="module:factory, file.py:factory, or a Hugging Face config.json (or its folder).",
    )
    add("--batch", type=int, default=1, metavar="N", help="Samples per step and rank (default: 1).")
    add("--optimizer", default="adamw", metavar="NAME", help="Such as adamw, adamw-fused, sgd (default: adamw).")
    add(
        "--layout",
        default=LAYOUTS,
        metavar="A,B,…",
        help=f"Precision layouts (default: {LAYOUTS}; also zero1, zero2, zero3).",
    )
    add("--world-size", type=int, default=8, metavar="N", help="Ranks that zero layouts spread over (default: 8).")
    add(
        "--card", metavar="SIZE", help="24GB, 24GiB or a card such as a100-80gb: also find the largest batch that fits."
    )
    add("--checkpoint", action="store_true", help="Compute blocks again in the backward pass.")
    add(
        "--sequence",
        type=int,
        metavar="N",
        help="Tokens per sample of a model from a config (default: its most, up to 2048).",
    )
    add("--device", default="cuda", metavar="NAME", help="cuda or cpu: whose rules are followed (default: cuda).")
    add("--format", choices=("text", "json"), default="text", help="How to print the answer (default: text).")


def plan_command(options: argparse.Namespace) -> int:
    """Print the plan; returns the exit code."""
    if find_spec("torch") is None:
        raise AmpDoctorError("a plan runs the model on fake tensors and needs torch", hint="pip install torch")
    planning = importlib.import_module("ampdoctor.record.planning.plan")
    question = planning.Question(
        options.target, options.batch, options.optimizer, options.layout, options.world_size, options.card,
        options.checkpoint, options.device, options.sequence,
    )  # fmt: skip
    found: Plan = planning.plan(question)
    to = console()
    if options.format == "json":
        to.file.write(report.document(found))
    else:
        show(report.page(found, to.width), to)
    if found.card_bytes is not None and not any(each.largest_batch for each in found.layouts):
        raise AmpDoctorError(
            f"a single sample does not fit {options.card} in any of these layouts",
            hint="try --checkpoint, --optimizer adamw-8bit, --layout pure-bf16,zero3, or a larger card",
        )
    return 0
