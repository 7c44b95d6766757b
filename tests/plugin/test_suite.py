"""A user's test file under the plugin, in a process of its own: outcomes, messages, the summary, kept traces."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from tests.e2e.command import environment

SUITE = Path(__file__).parent / "scripts" / "suite.py"


@dataclass(frozen=True)
class Outcome:
    """What came of the suite."""

    keeps: bool
    folder: Path
    output: str
    tests: dict[str, str]
    messages: dict[str, str]

    def message(self, name: str) -> str:
        """Return what is said of a failed test, in one line."""
        return " ".join(re.sub(r"^E ", "", self.messages[name], flags=re.MULTILINE).split())


def _run(folder: Path, *arguments: str) -> Outcome:
    shutil.copy(SUITE, folder / "test_suite.py")
    command = [sys.executable, "-m", "pytest", "-W", "error", "-p", "no:dash", "-p", "no:cacheprovider"]
    process = subprocess.run(
        [*command, "--junit-xml=junit.xml", *arguments],
        cwd=folder, env=environment(TMPDIR=str(folder)), capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert process.returncode == 1, process.stdout + process.stderr
    tests, messages = {}, {}
    for case in ET.parse(folder / "junit.xml").iter("testcase"):
        problem = next((child for child in case if child.tag in {"failure", "error", "skipped"}), None)
        tests[case.attrib["name"]] = "passed" if problem is None else problem.tag
        messages[case.attrib["name"]] = "" if problem is None else problem.text or ""
    return Outcome("--ampdoctor-dir" in arguments, folder, process.stdout, tests, messages)


@pytest.fixture(scope="module", params=["one process", "xdist"])
def outcome(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    """The suite without traces kept, and on two workers with them."""
    alone = request.param == "one process"
    return _run(tmp_path_factory.mktemp("suite"), *([] if alone else ["-n2", "--ampdoctor-dir", "traces"]))


def test_every_test_comes_out_as_its_name_says(outcome: Outcome) -> None:
    expected = {"ok": "passed", "fails": "failure", "skips": "skipped"}
    assert outcome.tests == {name: expected[name.rpartition("_")[2]] for name in outcome.tests}
    assert len(outcome.tests) > 15


def test_a_finding_is_told_with_its_evidence_and_its_fix(outcome: Outcome) -> None:
    said = outcome.message("test_underflow_fails")
    assert "error gradient-underflow (AMP101): FP16 gradients vanish" in said
    assert "(measured)" in said
    assert "Fix: Enable the GradScaler that the script has" in said
    assert "ampdoctor explain gradient-underflow" in said
    assert "recorded(ampdoctor, 1e-6).assert_no_findings()" in said  # the line of the test


@pytest.mark.parametrize("name", ["test_limit_fails", "test_marked_fails"])
def test_a_limit_is_told_with_its_value_and_its_cause(outcome: Outcome, name: str) -> None:
    said = outcome.message(name)
    assert "flushed gradient of 0.weight: 100 %, at most 1.0 % is allowed (measured)" in said
    assert "gradient-underflow (AMP101)" in said


def test_a_regression_is_told_with_what_it_was(outcome: Outcome) -> None:
    said = outcome.message("test_worse_than_before_fails")
    assert re.search(r"flushed gradient: 100 %; it was [<\d. ]+ %", said)
    assert "gradient-underflow (AMP101)" in said


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("test_typo_fails", "there is no largest flushd to set; there are: "),
        ("test_wrong_way_fails", "there is no largest cosine to set"),
        ("test_within_the_block_fails", "assert after the `with` block"),
        ("test_no_step_fails", "no training step was recorded"),
        ("test_mistyped_marker_fails", "unknown keyword max_flushd; known: "),
        ("test_marked_without_a_recording_fails", "has recorded nothing; use the fixture of that name"),
        ("test_missing_baseline_fails", "there is no baseline"),
        ("test_missing_baseline_fails", "ampdoctor baseline "),
        ("test_other_model_fails", "no site of the baseline is in this run: it has x0"),
        ("test_wrong_site_fails", "nothing was measured of the site 'nope'; known: '' (the run as a whole), 0.weight"),
        ("test_empty_baseline_fails", "is empty: everything would pass"),
    ],
)
def test_a_misuse_is_told_with_what_to_do(outcome: Outcome, name: str, said: str) -> None:
    assert said in outcome.message(name)
    assert "pytest_plugin" not in outcome.messages[name]


def test_the_summary_tells_each_recording(outcome: Outcome) -> None:
    assert re.search(r"^=+ ampdoctor =+$", outcome.output, re.MULTILINE)
    assert re.search(
        r"^\d+ runs recorded in \d+ tests, \d+ findings( \(and \d+ below fail-on\))?$", outcome.output, re.MULTILINE
    )
    assert "test_suite.py::test_underflow_fails: 8 steps, 8 examined: gradient-underflow (error)" in outcome.output
    assert outcome.output.count("test_two_runs_and_an_error_of_its_own_fails: 8 steps") == 2
    assert "test_no_step_fails: not judged: no training step was recorded" in outcome.output


def test_traces_of_failed_tests_are_kept_where_that_was_asked_for(outcome: Outcome) -> None:
    assert list(outcome.folder.glob("ampdoctor-*")) == []
    kept = sorted(path.name for path in outcome.folder.glob("traces/*"))
    if not outcome.keeps:
        assert kept == []
        assert "to keep the trace of this test: pytest --ampdoctor-dir DIR" in outcome.output
        return
    assert "test_suite.py-test_underflow_fails" in kept
    assert "test_suite.py-test_two_runs_and_an_error_of_its_own_fails-2" in kept
    assert all("fails" in name for name in kept)
    assert (
        f"kept: ampdoctor diagnose {outcome.folder / 'traces' / 'test_suite.py-test_underflow_fails'}" in outcome.output
    )
