"""Every English text that diagnoses and advice are made of, as far as examples and sample runs go."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ampdoctor.analysis.advice.bf16_costs import bf16_costs
from ampdoctor.analysis.advice.choosing import recommend
from ampdoctor.analysis.memory.advice import advice
from ampdoctor.analysis.memory.layouts import layouts
from ampdoctor.analysis.memory.ledgers import ledgers
from ampdoctor.analysis.memory.saved import saved_sentence
from ampdoctor.engine import diagnose
from ampdoctor.rules import discover
from ampdoctor.trace.run import open_run

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ampdoctor.engine import Diagnosis
    from ampdoctor.finding import Finding
    from ampdoctor.trace.run import Run

SAMPLES = Path(__file__).parents[2] / "sample_runs"


def told_texts() -> dict[str, str]:
    """Return each text and what says it."""
    found = {text: source for source, diagnosis in _diagnoses() for text in texts_of(diagnosis)}
    return found | {text: folder.name for folder in _samples() for text in _advice_on(open_run(folder))}


def texts_of(diagnosis: Diagnosis) -> Iterator[str]:
    """Yield what a diagnosis says, sentence by sentence."""
    yield diagnosis.verdict
    yield diagnosis.precision.sentence
    yield from diagnosis.examined.gaps
    yield from diagnosis.notices
    yield from (rule.reason for rule in diagnosis.skipped)
    for finding in diagnosis.findings:
        yield from _of_finding(finding)
    for ignored in diagnosis.ignored:
        yield from _of_finding(ignored.finding)


def _of_finding(finding: Finding) -> Iterator[str]:
    yield finding.summary
    yield from (evidence.text for evidence in finding.evidence)
    for fix in finding.fixes:
        yield from (fix.title, fix.expected)
    for consequence in finding.consequences:
        yield from _of_finding(consequence)


def _diagnoses() -> Iterator[tuple[str, Diagnosis]]:
    for rule in discover():
        for example in (*rule.SICK, *rule.HEALTHY):
            yield f"{rule.name}: {example.title}", diagnose(example.build().build())
    for folder in _samples():
        yield folder.name, diagnose(open_run(folder))


def _samples() -> list[Path]:
    return sorted(folder for folder in SAMPLES.iterdir() if (folder / "run.json").is_file())


def _advice_on(run: Run) -> Iterator[str]:
    yield from bf16_costs(run)
    advised = recommend(run)
    yield advised.note
    for cure in advised.ranked:
        yield from (cure.title, cure.expected)
    for ledger in ledgers(run).values():
        yield saved_sentence(layouts(run, ledger))
        yield from (each.text for each in advice(run, ledger))
    yield from (row.declined for row in run.twin_steps if row.declined)
    yield from (row.declined for row in run.paces if row.declined)
