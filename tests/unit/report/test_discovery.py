"""A report format is one file."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ampdoctor import report
from ampdoctor.errors import AmpDoctorError
from tests.unit.report.diagnoses import ALL, HEALTHY

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("name", report.known_formats())
@pytest.mark.parametrize("case", ALL)
def test_every_format_renders_every_diagnosis(name: str, case: str) -> None:
    assert ALL[case].verdict in report.find_format(name)(ALL[case])


def test_parts_of_reports_are_no_formats() -> None:
    assert {"text", "json"} <= set(report.known_formats())
    assert not {"layout", "chart", "terminal"} & set(report.known_formats())


def test_a_new_file_is_a_new_format(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = "def render(diagnosis):\n    return 'shout: ' + diagnosis.verdict.upper()\n"
    (tmp_path / "shout.py").write_text(source, encoding="utf-8")
    monkeypatch.setattr(report, "__path__", [*report.__path__, str(tmp_path)])
    report.known_formats.cache_clear()
    try:
        assert report.find_format("shout")(HEALTHY).startswith("shout: HEALTHY")
    finally:
        report.known_formats.cache_clear()


def test_an_unknown_format_names_the_known_ones() -> None:
    with pytest.raises(AmpDoctorError, match="unknown format 'yaml'") as caught:
        report.find_format("yaml")
    assert "json" in caught.value.hint
    assert "text" in caught.value.hint
