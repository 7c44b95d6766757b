"""Figures by themselves, as a notebook uses them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ampdoctor.errors import AmpDoctorError
from ampdoctor_dashboard import notebook

if TYPE_CHECKING:
    from pathlib import Path


def test_each_figure_is_drawn_of_a_folder(sample_runs: Path) -> None:
    run = sample_runs / "bert_fp16_collapse"
    for draw in (notebook.timeline, notebook.zeros, notebook.memory, notebook.time):
        assert len(draw(run).data) >= 1
    figure = notebook.spectrum(run, "grad_output:decoder.cast", theme="dark")
    assert len(figure.data) >= 1
    assert figure.layout.paper_bgcolor != notebook.timeline(run).layout.paper_bgcolor


def test_a_site_that_is_not_there_is_refused_with_some_that_are(sample_runs: Path) -> None:
    with pytest.raises(AmpDoctorError, match="no tensor") as refused:
        notebook.spectrum(sample_runs / "bert_fp32", "weight:nowhere")
    assert "there are" in refused.value.hint
