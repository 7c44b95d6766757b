"""`ampdoctor demo`: the cure is the one that the diagnosis names, and the numbers are those of the runs."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ampdoctor.cli import demo
from ampdoctor.cli.demo import change_in_words, choose_cure, losses
from ampdoctor.cli.rehearsal import steps_recorded
from ampdoctor.engine import diagnose
from ampdoctor.errors import AmpDoctorError
from ampdoctor.report.chart import Curve
from ampdoctor.trace.run import open_run
from tests.recorded import write_run
from tests.unit.report.diagnoses import COLLAPSED, HEALTHY, UNDERFLOW
from tools.bless import SAMPLES

if TYPE_CHECKING:
    from collections.abc import Callable

    from ampdoctor.engine import Diagnosis
    from tests.unit.cli.conftest import Outcome


def _with_fixes(*ranks: int) -> Diagnosis:
    fixes = tuple(UNDERFLOW.fixes[rank] for rank in ranks)
    return replace(COLLAPSED, findings=(replace(UNDERFLOW, fixes=fixes),))


def test_the_best_ranked_fix_is_the_cure() -> None:
    assert choose_cure(_with_fixes(0, 1)).sample == "bert_fp16_scaled"
    assert choose_cure(_with_fixes(1, 0)).sample == "bert_bf16"


@pytest.mark.parametrize("rank", [0, 1])
def test_the_sample_has_the_change_that_the_fix_really_names(rank: int) -> None:
    """As the rule words them: the BF16 fix, too, speaks of GradScaler, to say that none is needed."""
    diagnosis = diagnose(open_run(SAMPLES / "bert_fp16_collapse"))
    fixes = diagnosis.findings[0].fixes
    finding = replace(diagnosis.findings[0], fixes=fixes[rank : rank + 1])
    cure = choose_cure(replace(diagnosis, findings=(finding,)))
    recipe = (SAMPLES / cure.sample / "recipe.py").read_text(encoding="utf-8")
    assert ("bfloat16" in recipe) == ("BF16" in cure.fix.title)
    assert ("GradScaler(" in recipe) == ("GradScaler" in cure.fix.title)


def test_a_fix_without_a_sample_is_passed_over() -> None:
    unknown = replace(UNDERFLOW.fixes[0], title="Pray", code="pray()")
    finding = replace(UNDERFLOW, fixes=(unknown, UNDERFLOW.fixes[1]))
    assert choose_cure(replace(COLLAPSED, findings=(finding,))).sample == "bert_bf16"


def test_no_cure_is_made_up() -> None:
    with pytest.raises(AmpDoctorError, match="names no change") as caught:
        choose_cure(HEALTHY)
    assert caught.value.exit_code == 3


def test_losses_are_those_that_were_recorded(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", losses=[3.0, math.inf, 1.0])
    assert losses(folder) == [3.0, math.inf, 1.0]
    assert steps_recorded(folder) == 3
    assert steps_recorded(tmp_path) == 0


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ([4.0, 3.0, 2.0], "cured: the loss went from 4 to 2 (-50%)."),
        ([2e-5, 2e-5], "cured: the loss went from 2e-05 to 2e-05 (+0%)."),
        ([6.0, 4.0] * 20, "cured: the loss went from 5 to 5 (+0%)."),
        ([4.0, math.nan], "cured: the loss went from 4 to nan."),
        ([], "cured: no loss was recorded."),
    ],
)
def test_a_change_in_words(values: list[float], words: str) -> None:
    assert change_in_words(Curve("cured", values)) == words


def test_without_torch_it_says_what_to_install(
    ampdoctor: Callable[..., Outcome], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(demo, "find_spec", lambda name: None)
    outcome = ampdoctor("demo")
    assert outcome.code == 2
    assert "hint: pip install torch" in outcome.err


def test_a_missing_sample_is_told_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(package: str) -> Path:
        raise ModuleNotFoundError(package)

    monkeypatch.setattr("ampdoctor.cli.demo.resources.files", absent)
    with pytest.raises(AmpDoctorError, match="bert_bf16 is not installed"):
        demo.recipe("bert_bf16")


def _rehearsed(recipe: Path, folder: Path, steps: int, to: object) -> Path:
    """Stand in for the training: the sick one stays where it is, the cured one falls."""
    folder.rmdir()
    slope = 0.0 if "collapse" in str(recipe) else 0.1
    return write_run(folder, losses=[8.0 - slope * step for step in range(steps)])


def test_the_whole_story_is_told_in_order(ampdoctor: Callable[..., Outcome], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo, "recipe", lambda sample: Path(sample) / "recipe.py")
    monkeypatch.setattr(demo, "rehearse", _rehearsed)
    monkeypatch.setattr(demo, "diagnose", lambda run, config: COLLAPSED)
    outcome = ampdoctor("demo", "--steps", "40")
    assert outcome.code == 0
    parts = [
        COLLAPSED.verdict,
        "the recommended change: Scale the loss with GradScaler",
        "step 0",
        "as written: the loss went from 8 to 8 (+0%).",
        "with GradScaler: the loss went from 7.95 to 4.15 (-48%).",
        "ampdoctor diagnose ampdoctor-runs/demo-bert_fp16_collapse-",
        "ampdoctor diagnose ampdoctor-runs/demo-bert_fp16_scaled-",
    ]
    places = [outcome.out.find(part) for part in parts]
    assert -1 not in places, dict(zip(parts, places, strict=True))
    assert places == sorted(places)
