"""`ampdoctor whatif`: what is printed, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ampdoctor.cli.whatif import parse_scale
from ampdoctor.errors import AmpDoctorError

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.unit.cli.conftest import Outcome

    Ampdoctor = Callable[..., Outcome]

RUN = Path(__file__).parents[3] / "sample_runs" / "bert_fp16_scaled"


def test_text_says_it_in_a_sentence_and_in_a_table(ampdoctor: Ampdoctor) -> None:
    outcome = ampdoctor("whatif", RUN, "--scale", "2^4", "--site", "transform.*")
    assert outcome.code == 0
    lines = outcome.out.splitlines()
    assert lines[0].startswith("FP16 at loss scale 16: ")
    assert "of the weight gradients is flushed (estimated," in lines[0]
    assert any(line.startswith("From  step 2, recorded in FP16 at loss scale 65536") for line in lines)
    table = [line.split()[0] for line in lines if line.startswith("transform.")]
    assert table == ["transform.weight", "transform.bias", "transform.cast", "transform.out"] or table[:2] == [
        "transform.weight",
        "transform.bias",
    ]


def test_json_has_the_promised_keys(ampdoctor: Ampdoctor) -> None:
    outcome = ampdoctor("whatif", RUN, "--number-format", "e5m2", "--format", "json")
    answer = json.loads(outcome.out)
    assert list(answer["total"]) == ["estimated", "low", "high", "measured"]
    assert answer["total"]["measured"] is None
    assert (answer["schema_version"], answer["step"]) == (1, 2)
    assert (answer["number_format"], answer["scale"]) == ("e5m2", 65536.0)
    assert (answer["run_number_format"], answer["run_scale"]) == ("fp16", 65536.0)
    for site in answer["sites"]:
        assert {"site", "estimated", "low", "high", "measured"} <= site.keys()
        if site["estimated"] is not None:
            assert 0.0 <= site["low"] <= site["estimated"] <= site["high"] <= 1.0
    assert "decoder.bias" in {site["site"] for site in answer["sites"]}
    assert "decoder.out" in {site["site"] for site in answer["grad_outputs"]}


def test_the_curve_marks_the_run_s_own_scale(ampdoctor: Ampdoctor) -> None:
    outcome = ampdoctor("whatif", RUN, "--curve")
    assert outcome.code == 0
    assert outcome.out.isascii()
    assert "2^-12" in outcome.out
    assert "2^24" in outcome.out
    assert "^ the run's own scale, 65536 (2^16)" in outcome.out
    axis = next(line for line in outcome.out.splitlines() if line.strip() == "^")
    ticks = next(line for line in outcome.out.splitlines() if "2^-12" in line)
    assert abs(axis.index("^") - ticks.index("2^16")) <= 3
    assert max(map(len, outcome.out.splitlines())) <= 100


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--scale", "0"], "'0' is no loss scale"),
        (["--scale=-1"], "'-1' is no loss scale"),
        (["--scale", "nan"], "'nan' is no loss scale"),
        (["--scale", "2^999"], "'2^999' is no loss scale"),
        (["--number-format", "fp12"], "unknown number format 'fp12'"),
        (["--step", "7"], "step 7 has no recorded gradients"),
        (["--site", "nope"], "no weight gradient is called 'nope'"),
        (["--curve", "--format", "json"], "--curve is drawn as text only"),
    ],
)
def test_bad_usage_is_one_line_and_a_hint(ampdoctor: Ampdoctor, arguments: list[str], message: str) -> None:
    outcome = ampdoctor("whatif", RUN, *arguments)
    assert outcome.code == 2
    assert outcome.out == ""
    first, hint = outcome.err.splitlines()
    assert first == f"ampdoctor: error: {message}"
    assert hint.startswith("  hint: ")


def test_a_run_that_is_not_there(ampdoctor: Ampdoctor) -> None:
    assert ampdoctor("whatif", "nowhere").code == 2


@pytest.mark.parametrize(
    ("text", "scale"), [("1024", 1024.0), ("2^10", 1024.0), ("2**10", 1024.0), ("2^-3", 0.125), ("1e3", 1000.0)]
)
def test_scales_are_read(text: str, scale: float) -> None:
    assert parse_scale(text) == scale


@pytest.mark.parametrize("text", ["", "two", "2^", "2^x", "inf", "0x10", "2^128"])
def test_other_scales_are_not(text: str) -> None:
    with pytest.raises(AmpDoctorError, match="is no loss scale"):
        parse_scale(text)
