"""The heatmap of layers: which lines there are, and what is in its cells."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from ampdoctor.formats import FP16
from ampdoctor.histogram import ExponentHistogram
from ampdoctor.trace.builder import RunBuilder
from ampdoctor.underflow import estimate_flushed
from ampdoctor_dashboard.data import layers
from ampdoctor_dashboard.data.cells import worst_of
from ampdoctor_dashboard.data.layers import heat, worst_site
from ampdoctor_dashboard.data.metrics import METRICS, metric_of
from ampdoctor_dashboard.data.tensors import Site
from ampdoctor_dashboard.data.tree import FITS, MOST, lines_of, tree_of
from ampdoctor_dashboard.figures.heatmap import Colours, Heatmap, heatmap
from ampdoctor_dashboard.figures.style import Style
from tests.dashboard.built import opened

if TYPE_CHECKING:
    from pathlib import Path

    from ampdoctor_dashboard.data.opened import OpenedRun


@pytest.fixture
def run(tmp_path: Path) -> OpenedRun:
    """Two layers on two steps; the second flushes, and is all zero on the second step."""
    builder = RunBuilder()
    for step in range(2):
        builder.step()
        for module in ("net.a", "net.b"):
            builder.tensor(module, "grad_output", dtype="float16", exponents={-20: 1}, loss_scale=1.0)
        builder.tensor("net.a", "weight_grad", slot="weight", zeros=10, exponents={3: 30})
        sick = {} if step else {-24: 40, -23: 20, -22: 10}
        builder.tensor("net.b", "weight_grad", slot="weight", zeros=100 if step else 30, exponents=sick)
        builder.tensor("net.b", "activation", dtype="float16", exponents={14: 1}, absmax=65504.0 / 4.0)
    builder.twin("run", "net.b", "weight_grad", nonzero=100, flushed=60, too_small=50, cosine=0.5)
    return opened(tmp_path / "run", builder)


def _values(run: OpenedRun, metric: str, role: str = "weight_grad") -> dict[str, list[float]]:
    found = heat(run, metric_of(metric), role, frozenset())
    return {row.path: found.values[n].tolist() for n, row in enumerate(found.lines.rows)}


def test_modules_add_up_what_lies_in_them(run: OpenedRun) -> None:
    found = _values(run, "zeros")
    assert list(found) == ["", "net", "net.a.weight", "net.b.weight"]
    assert found["net.a.weight"] == [0.25, 0.25]
    assert found["net.b.weight"] == [0.3, 1.0]
    assert found[""] == found["net"] == pytest.approx([40 / 140, 110 / 140])


def test_what_is_estimated_is_what_the_rules_estimate(run: OpenedRun) -> None:
    alone = estimate_flushed(ExponentHistogram(-24, np.array([40, 20, 10]), zeros=30), FP16)
    assert alone is not None
    found = heat(run, metric_of("flushed"), "weight_grad", frozenset())
    assert found.values[3, 0] == pytest.approx(alone.share, rel=1e-2)
    assert found.values[2].tolist() == [0.0, 0.0]
    assert found.untold[3].tolist() == [False, True]


def test_what_was_measured_stands_on_its_step_only(run: OpenedRun) -> None:
    assert _values(run, "flushed_measured")["net.b.weight"] == pytest.approx([np.nan, 0.5], nan_ok=True)
    assert _values(run, "cosine")["net"] == pytest.approx([np.nan, 0.5], nan_ok=True)


def test_room_to_the_edges_of_the_format(run: OpenedRun) -> None:
    assert _values(run, "headroom", "activation")["net.b.out"] == pytest.approx([2.0, 2.0])
    assert _values(run, "above_flush", "grad_output")["net.a.out"] == pytest.approx([4.0, 4.0])
    assert _values(run, "rms")["net.a.weight"][0] == pytest.approx(np.log2(8.0 * np.sqrt(0.75)))


def test_a_cell_of_a_module_leads_to_its_worst_site(run: OpenedRun) -> None:
    lines = heat(run, metric_of("zeros"), "weight_grad", frozenset()).lines
    site = worst_site(run, metric_of("zeros"), "weight_grad", lines, 0, 0)
    assert site is not None
    assert run.tensors.sites[site].key == "weight_grad:net.b.weight"
    assert worst_site(run, metric_of("zeros"), "weight_grad", lines, 0, 7) is None


@pytest.mark.parametrize("metric", METRICS, ids=lambda m: m.key)
@pytest.mark.parametrize("role", ["weight_grad", "activation", "none"])
def test_every_metric_of_every_role_has_its_shape(run: OpenedRun, metric: str, role: str) -> None:
    found = heat(run, metric_of(getattr(metric, "key", metric)), role, frozenset())
    assert found.values.shape == (len(found.lines.rows), len(found.starts) - 1 if len(found.steps) else 0)


def test_many_estimates_are_made_of_some_steps(run: OpenedRun, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layers, "ESTIMATES", 2)
    found = heat(run, metric_of("flushed"), "weight_grad", frozenset())
    assert found.every == 2
    assert found.starts.tolist() == [0, 2]
    assert heat(run, metric_of("flushed"), "weight_grad", frozenset()).every == 1


def test_columns_show_the_worst_step_in_them() -> None:
    values = np.array([[0.1, 0.4, np.nan, np.nan]])
    worst, where = worst_of(values, np.array([0, 2]), low_is_bad=False)
    np.testing.assert_array_equal(worst, [[0.4, np.nan]])
    assert where[0, 0] == 1
    assert worst_of(values, np.array([0, 2]), low_is_bad=True)[0][0, 0] == 0.1


def _sites(*modules: str) -> list[Site]:
    return [Site(module, "weight", slot, "float32") for module in modules for slot in ("weight", "bias")]


def test_a_model_that_fits_is_unfolded_and_one_that_does_not_is_not() -> None:
    small, large = _sites("a", "b"), _sites(*(f"net.{n}" for n in range(FITS)))
    assert [row.path for row in lines_of(tree_of(small, "weight"), small, frozenset()).rows] == [
        "", "a", "a.weight", "a.bias", "b", "b.weight", "b.bias",
    ]  # fmt: skip
    rows = lines_of(tree_of(large, "weight"), large, frozenset()).rows
    assert len(rows) == FITS + 2
    assert [row.path for row in lines_of(tree_of(large, "weight"), large, frozenset({"net.0"})).rows][2:5] == [
        "net.0", "net.0.weight", "net.0.bias",
    ]  # fmt: skip


def test_the_order_is_that_of_the_model() -> None:
    sites = _sites("b", "a")
    rows = lines_of(tree_of(sites, "weight", ["a", "b"]), sites, frozenset({"a", "b"})).rows
    assert [row.path for row in rows] == ["", "a", "b"]


def test_no_more_lines_than_a_browser_likes() -> None:
    sites = _sites(*(f"m{n}" for n in range(2000)))
    lines = lines_of(tree_of(sites, "weight"), sites, frozenset())
    assert len(lines.rows) == MOST
    assert lines.left_out == 2001 - MOST
    assert (lines.of_site >= 0).all()


def test_figure_draws_names_as_text_and_marks_what_is_chosen() -> None:
    values = np.array([[0.5, np.nan]])
    data = Heatmap(
        ["<b>a</b>"], np.array([3, 5]), np.array([0, 1, 2]), values, np.array([[3, 5]]), np.array([[False, True]]),
        "zeros", "all zero", Colours(share=True), (0, 5),
    )  # fmt: skip
    figure = heatmap(data, Style())
    assert figure.layout.yaxis.ticktext == ("&lt;b&gt;a&lt;/b&gt;",)
    assert [trace.type for trace in figure.data] == ["heatmap", "heatmap"]
    assert [(shape.x0, shape.x1) for shape in figure.layout.shapes] == [(0.0, 1.0), (0.5, 1.5)]
