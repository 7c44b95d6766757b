"""What is shown behind a finding: what was recorded over steps, and what twins tried."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from ampdoctor.finding import Confidence, Evidence, Finding, Grade, Location, Severity
from ampdoctor.trace.builder import RunBuilder
from ampdoctor_dashboard.data.recorded import known_sites, recorded_behind, site_key
from ampdoctor_dashboard.data.tried import nearest, tried
from ampdoctor_dashboard.figures.sparkline import Sparkline, sparkline
from ampdoctor_dashboard.figures.style import Style
from ampdoctor_dashboard.widgets.prose import cut, prose
from ampdoctor_dashboard.widgets.tried import setting_title
from ampdoctor_dashboard.words import Words
from tests.dashboard.built import opened

if TYPE_CHECKING:
    from pathlib import Path


def _finding(*sites: str, name: str = "gradient-underflow", evidence: str = "flushed_share") -> Finding:
    backed = (Evidence(evidence, 1.0, "It is so."),)
    where = Location(sites, 0, 1)
    return Finding("AMP101", name, Severity.ERROR, "It is so.", Confidence.HIGH, Grade.OBSERVED, where, backed)


def _run() -> RunBuilder:
    run = RunBuilder()
    for step in range(2):
        run.step(loss=2.0 - step, loss_scale=8.0, held_graphs=step)
        run.tensor("head", "grad_output", slot="cast", exponents={-3: 4})
        run.tensor("head", "grad_output", exponents={-3: 3}, zeros=1)
        run.tensor("head", "grad_output", exponents={-1: 2}, zeros=2, call=1)
        run.tensor("", "weight", slot="scale", exponents={0: 4})
    return run


def test_a_site_of_a_finding_has_the_key_of_the_pages() -> None:
    assert site_key("encoder.0.out (grad_output)") == "grad_output:encoder.0.out"
    assert site_key("somewhere else") == ""


def test_only_recorded_sites_are_known(tmp_path: Path) -> None:
    run = opened(tmp_path / "run", _run())
    sites = ("head.out (grad_output)", "scale (weight)", "gone.out (grad_output)", "nonsense")
    known = known_sites(run, sites)
    assert [run.tensors.sites[n].key for n in known.values()] == ["grad_output:head.out", "weight:scale"]
    assert set(known) == {"head.out (grad_output)", "scale (weight)"}
    module = known_sites(run, ("head (grad_output)",))
    assert run.tensors.sites[module["head (grad_output)"]].key == "grad_output:head.cast"


def test_charts_are_of_the_first_site_that_has_something_to_show(tmp_path: Path) -> None:
    run = opened(tmp_path / "run", _run())
    found = recorded_behind(run, _finding("head.cast (grad_output)", "head.out (grad_output)"))
    assert [(own.what, own.site) for own in found] == [
        ("zero_share", "head.out"), ("absmax", "head.cast"), ("loss", "")
    ]  # fmt: skip
    assert found[0].step.tolist() == [0.0, 1.0]
    assert found[0].value.tolist() == [3 / 8, 3 / 8]  # two calls, with 1 of 4 and 2 of 4 zero
    assert found[1].value.tolist() == [0.125, 0.125]
    assert found[2].value.tolist() == [2.0, 1.0]


def test_evidence_that_is_called_like_a_column_is_charted_first(tmp_path: Path) -> None:
    run = opened(tmp_path / "run", _run())
    found = recorded_behind(run, _finding(name="no-rule-of-this-version", evidence="held_graphs"))
    assert [own.what for own in found] == ["held_graphs"]
    found = recorded_behind(run, _finding(name="scale-collapse", evidence="loss_scale_at_end"))
    assert [own.what for own in found][:1] == ["loss_scale"]


def test_a_finding_without_anything_recorded_has_no_charts(tmp_path: Path) -> None:
    assert recorded_behind(opened(tmp_path / "run", RunBuilder()), _finding("a.out (activation)")) == []


def test_what_was_tried_is_read_without_the_sites(tmp_path: Path) -> None:
    run = RunBuilder()
    for step in range(3):
        run.step(loss=1.0)
        if step == 1:
            continue
        run.twin_step("fp32", "bf16")
        run.twin("run", "", "gradient", shape=[4], nonzero=4, flushed=2, cosine=0.5, norm_ratio=0.5)
        run.twin("bf16", "", "gradient", shape=[4], nonzero=4, flushed=0, cosine=1.0, norm_ratio=1.0)
        run.twin("run", "head", "weight_grad", shape=[4], nonzero=4, flushed=2, cosine=0.5, norm_ratio=0.5)
    found = tried(opened(tmp_path / "run", run))
    assert [step.step for step in found] == [0, 2]
    assert found[0].run is not None
    assert found[0].run.flushed == 0.5
    assert found[0].run.weights == ()
    assert nearest(found, 0, 1) == found[0]
    assert nearest(found, None, None) == found[1]
    assert nearest(found, 7, 9) == found[1]
    assert nearest((), 0, 1) is None


@pytest.mark.parametrize(
    ("name", "title"),
    [
        ("run", "as it ran"),
        ("bf16", "BF16"),
        ("fp16@2^10", "FP16 at loss scale 2^10"),
        ("fp16@2^10+fp32:decoder", "FP16 at loss scale 2^10, decoder in FP32"),
    ],
)
def test_a_setting_is_called_by_what_it_is(name: str, title: str) -> None:
    assert setting_title(name, Words()) == title


def test_a_sparkline_has_its_title_its_axis_and_the_steps_of_the_finding() -> None:
    steps = np.arange(5.0)
    data = Sparkline("zero <b>[%]</b>", steps, np.array([0.0, 0.1, np.nan, 0.3, 0.4]), 1, 3, share=True)
    figure = sparkline(data, Style())
    assert figure.data[0].y[3] == 0.3
    assert figure.layout.annotations[0].text == "zero &lt;b&gt;[%]&lt;/b&gt;"
    assert figure.layout.xaxis.title.text == "step"
    assert [(s.x0, s.x1) for s in figure.layout.shapes] == [(1, 3), (1, 1)]
    assert figure.layout.yaxis.range[1] == pytest.approx(0.4 * 1.08)


def test_a_sparkline_over_many_powers_of_ten_is_logarithmic_and_a_flat_one_is_not_blown_up() -> None:
    wide = sparkline(Sparkline("x", np.arange(3.0), np.array([1.0, 10.0, 1e6])), Style())
    assert wide.layout.yaxis.type == "log"
    flat = sparkline(Sparkline("x", np.arange(3.0), np.full(3, 4.0)), Style())
    assert flat.layout.yaxis.range == (2.0, 6.0)
    zeros = sparkline(Sparkline("x", np.arange(3.0), np.zeros(3), share=True), Style())
    assert zeros.layout.yaxis.range[1] > 0.0
    absurd = sparkline(Sparkline("x", np.arange(3.0), np.array([1e308, -1e308, np.inf])), Style())
    assert np.nanmax(np.abs(absurd.data[0].y)) < 1e200
    empty = sparkline(Sparkline("x", np.arange(3.0), np.full(3, np.nan)), Style())
    assert "not a single finite value" in empty.layout.annotations[0].text


def test_names_in_sentences_are_code_and_text_stays_text() -> None:
    first, code, last = prose(Words(), "it is `<b>decoder</b>`, and more")
    assert (first, last) == ("it is ", ", and more")
    assert code.children == "<b>decoder</b>"
    assert prose(Words(), "one ` alone") == ["one ` alone"]
    assert cut("a" * 100, 11) == "aaaaa\N{HORIZONTAL ELLIPSIS}aaaaa"
