"""`ampdoctor check`, `baseline` and `compare`: exit codes, files, and one line with a hint for what can't be done."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from ampdoctor.cli import baselines
from ampdoctor.gate.baseline import VERSION, Baseline, text_of
from tests.recorded import write_run
from tests.unit.gate.runs import built, judged
from tests.unit.report.diagnoses import UNDERFLOW, UNTIDY

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from ampdoctor.config import Config
    from ampdoctor.diagnosis import Diagnosis
    from ampdoctor.trace.run import Run
    from tests.unit.cli.conftest import Outcome

    Ampdoctor = Callable[..., Outcome]

RUNS: dict[str, dict[str, Any]] = {"good": {}, "good2": {"subnormal": 13}, "bad": {"flushed": 40, "cosine": 0.7}}


@pytest.fixture(autouse=True)
def recorded(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Folders that stand for runs, whose diagnoses hold what their names say."""
    real = baselines.judged
    for name in (*RUNS, "found", "crashed"):
        (tmp_path / name).mkdir()

    def stub(path: Path, config: Config) -> tuple[Run, Diagnosis]:
        if path.name not in {*RUNS, "found", "crashed"}:
            return real(path, config)
        run, diagnosis = judged(built(**RUNS.get(path.name, {})).build())
        findings = (UNDERFLOW,) if path.name == "found" else ()
        crashed = UNTIDY.crashed if path.name == "crashed" else ()
        return run, replace(diagnosis, run=str(path), findings=findings, crashed=crashed)

    for module in ("baselines", "baseline", "check", "compare"):
        monkeypatch.setattr(f"ampdoctor.cli.{module}.judged", stub)


def refused(outcome: Outcome, message: str) -> None:
    """Check for exit code 2 with one line and a hint."""
    assert (outcome.code, outcome.out) == (2, "")
    error, hint = outcome.err.splitlines()
    assert message in error
    assert hint.startswith("  hint: ")


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("good",), 0),
        (("good", "--baseline", "good2"), 0),
        (("bad",), 0),
        (("bad", "--baseline", "good"), 1),
        (("bad", "--max", "flushed=50%"), 0),
        (("bad", "--max", "flushed=1%"), 1),
        (("bad", "--max", "flushed@b.*=1%"), 1),
        (("good", "--max", "lost_updates=1%"), 1),
        (("found",), 1),
        (("found", "--fail-on", "never"), 0),
        (("found", "--baseline", "found"), 0),
        (("found", "--ignore", "gradient-*"), 0),
        (("found", "--select", "AMP101"), 0),  # the finding of this test has another code
        (("crashed",), 3),
        (("crashed", "--fail-on", "never"), 0),
        (("crashed", "--max", "flushed=1%"), 3),
        (("good", "--baseline", "none.json", "--baseline-missing", "ok"), 0),
        (("bad", "--baseline", "none.json", "--baseline-missing", "ok", "--max", "flushed=1%"), 1),
    ],
)
def test_exit_codes(ampdoctor: Ampdoctor, arguments: tuple[str, ...], code: int) -> None:
    if "--select" in arguments:
        assert UNDERFLOW.code != "AMP101"
        arguments = (*arguments[:-1], "lost-updates")
    outcome = ampdoctor("check", *arguments)
    assert outcome.code == code, outcome
    assert outcome.err == ""


BAD_USAGE: dict[str, tuple[tuple[str, ...], str]] = {
    "no run": ((), "which run"),
    "a missing run": (("nowhere",), "nowhere does not exist"),
    "a missing baseline": (("good", "--baseline", "none.json"), "there is no baseline none.json"),
    "no such metric": (("good", "--max", "colour=1"), "unknown metric"),
    "no limit": (("good", "--max", "flushed"), "is no limit"),
    "two limits for one": (("good", "--max", "flushed=1%", "--max", "flushed=2%"), "two limits for flushed"),
    "no such severity": (("good", "--fail-on", "fatal"), "can't be 'fatal'"),
    "no such rule": (("good", "--ignore", "nope"), "no rule matches 'nope'"),
    "selected and ignored": (("good", "--select", "AMP101", "--ignore", "AMP101"), "both selected and ignored"),
    "no such format": (("good", "--format", "yaml"), "unknown format"),
    "update of nothing": (("good", "--update"), "--update without a baseline"),
    "update of a run": (("good", "--update", "--baseline", "good2"), "is a run"),
    "missing without a baseline": (("good", "--baseline-missing", "ok"), "--baseline-missing without"),
    "missing may be what": (("good", "--baseline", "x", "--baseline-missing", "maybe"), "can't be 'maybe'"),
    "the report over the baseline": (("good", "--baseline", "b.json", "-o", "b.json"), "b.json is the baseline"),
    "the report into a folder": (("good", "-o", "good2"), "cannot write good2"),
}


@pytest.mark.parametrize("case", BAD_USAGE)
def test_bad_usage_is_one_line_and_a_hint(ampdoctor: Ampdoctor, case: str) -> None:
    arguments, message = BAD_USAGE[case]
    refused(ampdoctor("check", *arguments), message)


BAD_BASELINES = {
    "empty": (text_of(Baseline(0)), "is empty"),
    "foreign": ('{"name": "web"}', "is not a baseline"),
    "damaged": ("{", "cannot read the baseline"),
    "newer": (
        text_of(Baseline(1)).replace(f'"schema_version": {VERSION}', f'"schema_version": {VERSION + 1}'),
        "reads up",
    ),
}


@pytest.mark.parametrize("case", BAD_BASELINES)
def test_bad_baselines_are_refused(ampdoctor: Ampdoctor, tmp_path: Path, case: str) -> None:
    text, message = BAD_BASELINES[case]
    (tmp_path / "b.json").write_text(text, encoding="utf-8")
    refused(ampdoctor("check", "good", "--baseline", "b.json"), message)
    lenient = ampdoctor("check", "good", "--baseline", "b.json", "--baseline-missing", "ok")
    assert lenient.code == (0 if case == "empty" else 2)


def test_a_run_without_steps_can_not_pass(ampdoctor: Ampdoctor, tmp_path: Path) -> None:
    write_run(tmp_path / "short", losses=())
    refused(ampdoctor("check", "short"), "no step was completed in short")


def test_a_run_that_was_not_examined_can_not_pass_a_baseline(ampdoctor: Ampdoctor, tmp_path: Path) -> None:
    write_run(tmp_path / "blind")
    refused(ampdoctor("check", "blind", "--baseline", "good"), "no step was examined")


def test_a_baseline_is_written_once(ampdoctor: Ampdoctor, tmp_path: Path) -> None:
    assert ampdoctor("baseline", "good", "good2", "-o", "ci/b.json").code == 0
    first = (tmp_path / "ci" / "b.json").read_text(encoding="utf-8")
    assert json.loads(first)["runs"] == 2
    refused(ampdoctor("baseline", "good", "-o", "ci/b.json"), "ci/b.json is there already")
    assert (tmp_path / "ci" / "b.json").read_text(encoding="utf-8") == first
    one = ampdoctor("baseline", "good", "-o", "ci/b.json", "--force")
    assert "is not known" in one.err
    assert [p.name for p in (tmp_path / "ci").iterdir()] == ["b.json"]


def test_update_rewrites_what_was_reviewed(ampdoctor: Ampdoctor, tmp_path: Path) -> None:
    ampdoctor("baseline", "good", "-o", "b.json")
    assert ampdoctor("check", "bad", "--baseline", "b.json").code == 1
    updated = ampdoctor("check", "bad", "--baseline", "b.json", "--update")
    assert updated.code == 0
    assert "flushed gradient" in updated.out
    assert "b.json has been written anew: 4 numbers changed, 0 numbers new, 0 numbers gone" in updated.err
    assert ampdoctor("check", "bad", "--baseline", "b.json").code == 0
    assert "  flushed gradient: 0 % -> 40.0 %" in updated.err


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (("found",), "this run fails: "),
        (("bad", "--max", "flushed=1%"), "this run fails: flushed gradient: 40.0 %"),
        (("crashed",), "scale-hunting could not judge"),
    ],
)
def test_update_accepts_no_run_that_fails(
    ampdoctor: Ampdoctor, tmp_path: Path, arguments: tuple[str, ...], why: str
) -> None:
    ampdoctor("baseline", "good", "-o", "b.json")
    before = (tmp_path / "b.json").read_bytes()
    outcome = ampdoctor("check", *arguments, "--baseline", "b.json", "--update")
    assert outcome.code == 2
    assert f"the baseline stays as it is: {why}" in outcome.err
    assert "hint: " in outcome.err
    assert (tmp_path / "b.json").read_bytes() == before


def test_update_keeps_a_baseline_of_several_runs(ampdoctor: Ampdoctor) -> None:
    ampdoctor("baseline", "good", "good2", "-o", "b.json")
    outcome = ampdoctor("check", "good", "--baseline", "b.json", "--update")
    refused(outcome, "b.json is of 2 runs")
    assert "ampdoctor baseline RUN RUN -o b.json --force" in outcome.err


def test_a_limit_on_no_site_names_those_there_are(ampdoctor: Ampdoctor) -> None:
    assert (
        "Known sites: a.weight, b.weight"
        in ampdoctor("check", "good", "--max", "flushed@x.*=1%", "--format", "json").out
    )


def test_a_report_goes_to_a_file(ampdoctor: Ampdoctor, tmp_path: Path) -> None:
    outcome = ampdoctor("check", "bad", "--baseline", "good", "--format", "junit", "-o", "out/report.xml")
    assert (outcome.code, outcome.out) == (1, "")
    assert "failed: flushed gradient: 40.0 %" in outcome.err
    assert (tmp_path / "out" / "report.xml").read_text(encoding="utf-8").startswith("<?xml")


def test_settings_come_from_the_file_too(ampdoctor: Ampdoctor, tmp_path: Path) -> None:
    (tmp_path / "ampdoctor.toml").write_text('[gate]\nbaseline = "good"\n[gate.max]\nskipped = "1%"\n')
    assert ampdoctor("check", "bad").code == 1
    assert ampdoctor("check", "good").code == 0
    assert '"skipped" = "1%"' in ampdoctor("check", "--show-config").out


def test_compare_tells_people_and_programs(ampdoctor: Ampdoctor) -> None:
    assert "worse: gradient cosine to FP32, flushed gradient" in ampdoctor("compare", "good", "bad").out
    assert json.loads(ampdoctor("compare", "good", "bad", "--format", "json").out)["changes"][0]["direction"] == "worse"
    assert ampdoctor("compare", "good", "bad", "--format", "markdown").out.startswith("### ampdoctor compare: worse")
    refused(ampdoctor("compare", "good", "nowhere"), "nowhere does not exist")
