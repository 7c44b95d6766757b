"""Limits as they are written on the command line."""

from __future__ import annotations

from pathlib import Path

import pytest

from ampdoctor.errors import AmpDoctorError
from ampdoctor.gate.metrics import METRICS
from ampdoctor.gate.policy import parse_limit
from ampdoctor.gate.readings import _READERS


@pytest.mark.parametrize(
    ("text", "metric", "site", "value"),
    [
        ("flushed=1%", "flushed", "", 0.01),
        ("flushed=0.5", "flushed", "", 0.5),
        (" flushed@encoder.*=2 %", "flushed", "encoder.*", 0.02),
        ("subnormal@a=b.*=1%", "subnormal", "a", None),
        ("min_scale=2^8", "min_scale", "", 8.0),
        ("min_scale=2**-3", "min_scale", "", -3.0),
        ("min_scale=1024", "min_scale", "", 10.0),
        ("memory=4GiB", "memory", "", float(4 << 30)),
        ("memory@activations=1.5 MB", "memory", "activations", 1.5e6),
        ("memory=1000", "memory", "", 1000.0),
        ("step_ms=20ms", "step_ms", "", 20.0),
        ("cosine=0.99", "cosine", "", 0.99),
        ("cosine=-1", "cosine", "", -1.0),
        ("skipped=0", "skipped", "", 0.0),
    ],
)
def test_a_limit_is_read(text: str, metric: str, site: str, value: float | None) -> None:
    if value is None:
        with pytest.raises(AmpDoctorError):
            parse_limit(text)
        return
    limit = parse_limit(text)
    assert (limit.metric.name, limit.site) == (metric, site)
    assert limit.value == pytest.approx(value)


@pytest.mark.parametrize(
    "text",
    [
        "", "flushed", "flushed=", "=1", "flushed=x", "flushed=nan", "flushed=-1%", "flushed=200%", "flushed=2",
        "memory=4XB", "memory=inf", "min_scale=0", "min_scale=-4", "min_scale=2^9999", "skipped@a=1%", "cosine@a=1",
        "colour=1", "FLUSHED=1%", "flushed@=1%", "step_ms=1e999", "memory=1..5MB",
    ],
)  # fmt: skip
def test_what_is_no_limit_is_refused_with_a_hint(text: str) -> None:
    with pytest.raises(AmpDoctorError) as caught:
        parse_limit(text)
    assert caught.value.exit_code == 2
    assert caught.value.hint
    assert "\n" not in caught.value.message


def test_a_limit_for_sites_does_not_hold_for_the_run_as_a_whole() -> None:
    limit = parse_limit("flushed@*=1%")
    assert limit.covers("encoder.weight")
    assert not limit.covers("")
    assert not parse_limit("flushed=1%").covers("encoder.weight")


def test_every_metric_is_read() -> None:
    assert set(_READERS) == set(METRICS)


def test_every_tolerance_says_where_it_comes_from() -> None:
    page = (Path(__file__).parents[3] / "docs" / "ci.md").read_text(encoding="utf-8")
    assert [m.name for m in METRICS.values() if not m.why or f"- `{m.name}`: {m.why}\n" not in page] == []
