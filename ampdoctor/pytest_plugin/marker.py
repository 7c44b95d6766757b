"""The marker: what a test's trainings are checked for as soon as the test itself has passed."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ampdoctor.gate.metrics import METRICS, Worse
from ampdoctor.pytest_plugin.recording import limit_texts

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ampdoctor.config import GateSettings
    from ampdoctor.pytest_plugin.recordings import Recordings

_OTHERS = ("sites", "baseline", "fail_on", "select", "ignore")


def check_marked(said: Mapping[str, Any], made: Recordings | None) -> str:
    """Return what is wrong with what a marked test recorded; empty where nothing is.

    Severities and rules are those of the settings unless the marker says otherwise. Limits and baselines are the
    marker's alone: those of the settings belong to another training.
    """
    if made is None or not made.all:
        how = "with ampdoctor.watch(model, optimizer=optimizer): ..."
        return f"the test is marked `ampdoctor` and has recorded nothing; use the fixture of that name: {how}"
    try:
        settings = _settings(said, made.config.gate)
        complaints = [recording.complaint(settings, said.get("baseline")) for recording in made.all]
    except AssertionError as error:
        return f"the marker `ampdoctor`: {error}"
    return "\n\n".join(filter(None, complaints))


def _settings(said: Mapping[str, Any], settings: GateSettings) -> GateSettings:
    known = {_keyword(name): (name, metric.worse) for name, metric in METRICS.items()}
    unknown = [key for key in said if key not in known and key not in _OTHERS]
    if unknown:
        raise AssertionError(f"unknown keyword {', '.join(unknown)}; known: {', '.join((*known, *_OTHERS))}")
    limits: list[str] = []
    for key, value in said.items():
        if key in known:
            name, worse = known[key]
            sites = said.get("sites", "") if METRICS[name].by_site else ""
            limits += limit_texts(worse, {name: value}, sites)
    others = {name: said.get(name) for name in ("fail_on", "select", "ignore")}
    return replace(settings, max={}).over("the marker", limits=limits, **others)


def _keyword(metric: str) -> str:
    if METRICS[metric].worse is Worse.MORE:
        return f"max_{metric}"
    return metric if metric.startswith("min_") else f"min_{metric}"
