"""The diagnosis as a whole: what passed, what was skipped, what failed, what the user accepts."""

from __future__ import annotations

import os
import socket
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

import pytest

from ampdoctor.config import Config, Ignore
from ampdoctor.engine import diagnose
from ampdoctor.finding import Evidence, Finding, Fix, Location, Severity
from ampdoctor.rules.base import Rule
from ampdoctor.trace.builder import RunBuilder

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ampdoctor.trace.run import Run


class Loud(Rule):
    """It always speaks."""

    code, name, severity = "AMP901", "loud", Severity.ERROR
    needs: ClassVar[tuple[str, ...]] = ("steps",)
    HEALTHY = SICK = ()

    def check(self, run: Run) -> Iterator[Finding]:
        yield self.finding(
            "It is loud.",
            evidence=[Evidence("noise", 11, "The noise is 11.")],
            fixes=[Fix("Turn it down", "volume = 1", "Quiet.")],
            location=Location(("head.out (activation)",), 0, 0),
        )


class Echo(Loud):
    """It follows from the loud one."""

    code, name, after = "AMP902", "echo", ("loud",)


class Quiet(Loud):
    """It never speaks."""

    code, name = "AMP903", "quiet"

    def check(self, run: Run) -> Iterator[Finding]:
        return iter(())


class Broken(Loud):
    """It fails."""

    code, name = "AMP904", "broken"

    def check(self, run: Run) -> Iterator[Finding]:
        yield from super().check(run)
        raise ZeroDivisionError("oops")


class Blind(Quiet):
    """It needs what nobody recorded."""

    code, name = "AMP905", "blind"
    needs: ClassVar[tuple[str, ...]] = ("steps.grad_norm", "tensors")


class Wide(Loud):
    """It speaks of two places."""

    code, name = "AMP906", "wide"

    def check(self, run: Run) -> Iterator[Finding]:
        for finding in super().check(run):
            yield replace(finding, location=Location(("head.out (activation)", "body.out (activation)"), 0, 0))


class Crash(Loud):
    """It speaks of an exception, in whichever step."""

    code, name, needs = "AMP907", "crash", ()


class Silent(Quiet):
    """It needs nothing and has nothing to say."""

    code, name, needs = "AMP908", "silent", ()


def _run() -> Run:
    return RunBuilder().step(loss=1.0).build()


def test_each_rule_ends_up_in_one_place() -> None:
    diagnosis = diagnose(_run(), rules=[Loud(), Quiet(), Broken(), Blind()])
    assert [f.name for f in diagnosis.findings] == ["loud"]
    assert diagnosis.passed == ("quiet",)
    assert [(s.rule, s.reason) for s in diagnosis.skipped] == [("blind", "not recorded: steps.grad_norm, tensors")]
    assert [(c.rule, c.reason) for c in diagnosis.crashed] == [("broken", "ZeroDivisionError: oops")]


def test_a_rule_that_fails_is_never_healthy() -> None:
    verdict = diagnose(_run(), rules=[Broken()]).verdict
    assert "broken" in verdict
    assert not verdict.startswith("healthy")


def test_faults_leave_out_notes() -> None:
    note = Loud()
    note.severity = Severity.NOTE  # type: ignore[misc]
    diagnosis = diagnose(_run(), rules=[note])
    assert len(diagnosis.findings) == 1
    assert diagnosis.faults == ()


def test_an_accepted_finding_is_kept_with_its_reason() -> None:
    config = Config(ignore=(Ignore("loud", "we like it"),))
    diagnosis = diagnose(_run(), config, rules=[Loud(), Quiet()])
    assert diagnosis.findings == ()
    assert diagnosis.verdict == "nothing found beyond 1 accepted finding in 1 of 1 step examined"
    (ignored,) = diagnosis.ignored
    assert (ignored.finding.name, ignored.reason) == ("loud", "we like it")
    assert "loud" not in diagnosis.passed


def test_an_accepted_cause_takes_its_consequences_along() -> None:
    config = Config(ignore=(Ignore("loud", "we like it"),))
    diagnosis = diagnose(_run(), config, rules=[Loud(), Echo()])
    assert diagnosis.findings == ()
    assert [c.name for c in diagnosis.ignored[0].finding.consequences] == ["echo"]


def test_an_accepted_consequence_leaves_its_cause() -> None:
    config = Config(ignore=(Ignore("echo", "known"),))
    diagnosis = diagnose(_run(), config, rules=[Loud(), Echo()])
    assert [(f.name, f.consequences) for f in diagnosis.findings] == [("loud", ())]
    assert [i.finding.name for i in diagnosis.ignored] == ["echo"]


@pytest.mark.parametrize(("site", "kept"), [("head.*", 0), ("body.*", 1)])
def test_a_finding_is_accepted_by_site(site: str, kept: int) -> None:
    config = Config(ignore=(Ignore("loud", "only there", site),))
    assert len(diagnose(_run(), config, rules=[Loud()]).findings) == kept


def test_a_finding_is_accepted_where_all_of_its_sites_match_and_not_where_some_do() -> None:
    config = Config(ignore=(Ignore("wide", "only there", "head.*"),))
    diagnosis = diagnose(_run(), config, rules=[Wide()])
    assert [f.name for f in diagnosis.findings] == ["wide"]
    (notice,) = diagnosis.notices
    assert notice.startswith(
        "An entry of [tool.ampdoctor] matched nothing: rule wide, site head.*. A finding is accepted"
    )


def test_an_entry_that_matched_nothing_is_told() -> None:
    ignore = (Ignore("loud", "we like it"), Ignore("echo", "folded under it"), Ignore("quiet", "it never speaks"))
    diagnosis = diagnose(_run(), Config(ignore=ignore), rules=[Loud(), Echo(), Quiet()])
    assert diagnosis.notices == ("An entry of [tool.ampdoctor] matched nothing: rule quiet.",)


def test_a_rule_is_skipped_where_no_step_was_completed_but_may_speak() -> None:
    diagnosis = diagnose(RunBuilder().build(), rules=[Crash(), Silent(), Blind()])
    assert [f.name for f in diagnosis.findings] == ["crash"]
    assert diagnosis.passed == ()
    reason = "no step was completed"
    assert [(s.rule, s.reason) for s in diagnosis.skipped] == [("silent", reason), ("blind", reason)]


def test_what_was_examined_is_counted() -> None:
    run = RunBuilder().step().module("head").tensor("head", "activation").step(examined=False)
    examined = diagnose(run.build(), rules=[]).examined
    assert (examined.steps, examined.examined_steps, examined.tensors, examined.modules) == (2, 1, 1, 1)
    assert examined.gaps == ()


@pytest.mark.parametrize(
    ("info", "gap"),
    [
        ({"status": "degraded", "degraded": "RuntimeError: boom"}, "boom"),
        ({"status": "crashed", "exit_code": -9}, "the run was cut: its process was killed"),
        ({"status": "running", "pid": 2**22 + 1}, "the run was cut: its record was not completed"),
        ({"status": "running", "pid": os.getpid()}, "the run has not finished"),
        ({"status": "running", "pid": 1, "host": "far"}, "it goes on, or was killed, on far"),
    ],
)
def test_what_could_not_be_examined_is_told(info: dict[str, object], gap: str) -> None:
    gaps = diagnose(RunBuilder(**{"host": socket.gethostname()} | info).step().build(), rules=[]).examined.gaps
    assert any(gap in text for text in gaps)


def test_a_run_without_a_step_says_so() -> None:
    diagnosis = diagnose(RunBuilder().build(), rules=[])
    assert "no optimizer step was completed" in diagnosis.examined.gaps
    assert diagnosis.verdict == "nothing to judge: no optimizer step was completed"


def test_every_rule_is_asked_by_default() -> None:
    diagnosis = diagnose(_run())
    assert "gradient-underflow" in {*diagnosis.passed, *(s.rule for s in diagnosis.skipped)}
