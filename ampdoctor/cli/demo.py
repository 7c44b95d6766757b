"""`ampdoctor demo`: a training that fails, its diagnosis, the cure that the diagnosis names, and the proof."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from importlib import resources
from importlib.util import find_spec
from math import isfinite
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Annotated

import typer

from ampdoctor.cli.rehearsal import rehearse
from ampdoctor.config import Config
from ampdoctor.engine import diagnose
from ampdoctor.errors import AmpDoctorError, OutputNotWritableError
from ampdoctor.report.chart import Curve, side_by_side
from ampdoctor.report.layout import Page
from ampdoctor.report.terminal import console, show, show_diagnosis
from ampdoctor.session import new_run_folder
from ampdoctor.trace.run import open_run

if TYPE_CHECKING:
    from rich.console import Console

    from ampdoctor.engine import Diagnosis
    from ampdoctor.finding import Fix

SICK = "bert_fp16_collapse"
"""The sample that fails."""

CURES = {"GradScaler": "bert_fp16_scaled", "BF16": "bert_bf16"}
"""The sample that has a change, by the fix's title; its code may speak of the other one too, to rule it out."""

STEPS = 40
"""Enough for the cured loss to fall by a third, in well under a minute on two cores."""

_AVERAGED_SHARE = 0.05
"""Share of the steps at either end over which a loss is averaged: single batches are noisy."""


def demo(
    steps: Annotated[int, typer.Option(min=10, metavar="N", help="Optimizer steps of each training.")] = STEPS,
) -> None:
    """Watch a training fail and be cured.

    Trains a small BERT twice; needs torch, and one to three minutes.
    """
    if find_spec("torch") is None:
        raise AmpDoctorError("the demo trains a model and needs torch", hint="pip install torch")
    to = console()
    _say(to, "A small BERT learns to fill in masked words, in FP16 autocast, with a mistake that many scripts have.")
    sick = rehearse(recipe(SICK), _folder(SICK), steps, to)
    diagnosis = diagnose(open_run(sick), Config())
    to.print()
    show_diagnosis(diagnosis, to)
    cure = choose_cure(diagnosis)
    to.print()
    _say(to, f"Now the same training with the recommended change: {cure.fix.title}.")
    healthy = rehearse(recipe(cure.sample), _folder(cure.sample), steps, to)
    to.print()
    _compare(Curve("as written", losses(sick)), Curve(f"with {cure.name}", losses(healthy)), to)
    to.print()
    _say(to, "Both runs are kept:")
    for folder in (sick, healthy):
        to.print(f"  ampdoctor diagnose {folder}", soft_wrap=True)


@dataclass(frozen=True)
class Cure:
    """The recommended change, and the sample that has it."""

    fix: Fix
    name: str
    sample: str


def choose_cure(diagnosis: Diagnosis) -> Cure:
    """Return the best ranked fix of the worst finding for which there is a sample.

    Raises:
        AmpDoctorError: there is none.
    """
    for finding in diagnosis.faults:
        for fix in finding.fixes:
            for name, sample in CURES.items():
                if name in fix.title:
                    return Cure(fix, name, sample)
    raise AmpDoctorError(
        "the diagnosis names no change that the demo could show", hint="please report this", exit_code=3
    )


def recipe(sample: str) -> Path:
    """Return the training script of a sample run.

    Raises:
        AmpDoctorError: the sample runs are not installed.
    """
    try:
        path = Path(str(resources.files("ampdoctor_sample_runs") / sample / "recipe.py"))
    except ModuleNotFoundError:
        path = Path()
    if not path.is_file():
        raise AmpDoctorError(f"the sample {sample} is not installed", hint="pip install --force-reinstall ampdoctor")
    return path


def losses(folder: Path) -> list[float]:
    """Return the loss of every recorded step, NaN where there was none."""
    return [float("nan") if step.loss is None else step.loss for step in open_run(folder).steps]


def change_in_words(curve: Curve) -> str:
    """Return how a loss went, in one sentence."""
    if not curve.values:
        return f"{curve.title}: no loss was recorded."
    span = max(1, round(_AVERAGED_SHARE * len(curve.values)))
    first, last = fmean(curve.values[:span]), fmean(curve.values[-span:])
    known = isfinite(first) and isfinite(last) and first != 0.0
    change = f" ({last / first - 1.0:+.0%})" if known else ""
    return f"{curve.title}: the loss went from {first:.3g} to {last:.3g}{change}."


def _compare(sick: Curve, healthy: Curve, to: Console) -> None:
    # Braille wants both a terminal and an encoding that has it.
    fine = to.is_terminal and to.encoding.startswith("utf")
    to.print(side_by_side([sick, healthy], width=min(to.width, 100), fine=fine), soft_wrap=True)
    to.print()
    _say(to, change_in_words(sick))
    _say(to, change_in_words(healthy))


def _folder(sample: str) -> Path:
    try:
        return new_run_folder(f"demo-{sample}")
    except OutputNotWritableError:
        return Path(tempfile.mkdtemp(prefix=f"ampdoctor-demo-{sample}-"))


def _say(to: Console, text: str) -> None:
    page = Page(to.width)
    page.say(text)
    show(page, to)
