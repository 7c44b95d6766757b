"""The report: one file that a browser shows without network, whatever the run holds."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ampdoctor.cli.app import invoke
from ampdoctor.errors import AmpDoctorError, OutputExistsError, OutputNotWritableError
from ampdoctor_dashboard.report import write_report
from ampdoctor_dashboard.report.embedded import escaped_json, json_text
from tests.dashboard.hostile import hostile_run

if TYPE_CHECKING:
    from playwright.sync_api import BrowserContext, Page

RUNS = sorted(p.parent.name for p in (Path(__file__).parents[2] / "sample_runs").glob("*/run.json"))

MOST_BYTES = 6_000_000


def _opened(context: BrowserContext, file: Path) -> tuple[Page, list[str]]:
    """Return the report as a browser without network shows it, and what the browser complained about or asked for."""
    context.set_offline(True)
    page, wrong = context.new_page(), []
    page.on("console", lambda m: wrong.append(m.text))
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on("request", lambda r: wrong.append(r.url) if r.url != file.as_uri() else None)
    page.on("dialog", lambda dialog: wrong.append(f"a dialog: {dialog.message}"))
    page.goto(file.as_uri())
    page.wait_for_function(
        "() => [...document.querySelectorAll('.figure')].every(f => f.querySelector('svg.main-svg'))"
    )
    return page, wrong


@pytest.mark.parametrize("run", RUNS)
def test_every_sample_run_fits_and_shows_its_verdict(
    context: BrowserContext, sample_runs: Path, tmp_path: Path, run: str
) -> None:
    written = write_report(sample_runs / run, tmp_path / "report.html")
    assert written.bytes == written.path.stat().st_size <= MOST_BYTES
    page, wrong = _opened(context, written.path)
    said = page.inner_text(".verdict-text").replace("`", "")
    assert said == written.verdict.replace("`", "")
    assert page.locator(".figure").count() >= 4
    assert wrong == []


def test_nothing_in_a_trace_is_executed(context: BrowserContext, tmp_path: Path) -> None:
    run = hostile_run(tmp_path / "<img src=x onerror=window.hacked=1>")
    written = write_report(run, tmp_path / "report.html")
    assert written.bytes <= MOST_BYTES
    page, wrong = _opened(context, written.path)
    assert page.evaluate("() => window.hacked") is None
    assert page.locator("img, iframe, a").count() == 0
    assert wrong == []


def test_the_policy_forbids_other_scripts(context: BrowserContext, tmp_path: Path, sample_runs: Path) -> None:
    written = write_report(sample_runs / "bert_fp32", tmp_path / "report.html")
    page, _ = _opened(context, written.path)
    tried = page.evaluate(
        """() => { const script = document.createElement("script"); script.textContent = "window.hacked = 1";
        document.body.append(script); return window.hacked ?? null; }"""
    )
    assert tried is None
    text = written.path.read_text(encoding="utf-8")
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', text)
    assert policy is not None
    assert "default-src 'none'" in policy[1]
    assert "unsafe-eval" not in policy[1]


def test_it_follows_the_theme_and_speaks_chinese(context: BrowserContext, tmp_path: Path, sample_runs: Path) -> None:
    written = write_report(sample_runs / "bert_fp16_collapse", tmp_path / "report.html", lang="zh")
    page, wrong = _opened(context, written.path)
    ground = "() => document.querySelector('.figure .main-svg').style.background"
    light = page.evaluate(ground)
    page.emulate_media(color_scheme="dark")
    page.wait_for_function(f"before => ({ground})() !== before", arg=light)
    assert "报告" in page.inner_text("h1")
    assert page.get_attribute("html", "lang") == "zh-CN"
    assert wrong == []


def test_findings_say_all_that_the_page_says(context: BrowserContext, tmp_path: Path, sample_runs: Path) -> None:
    written = write_report(sample_runs / "bert_fp16_collapse", tmp_path / "report.html")
    page, _ = _opened(context, written.path)
    finding = page.inner_text(".finding")
    for part in ("gradient-underflow", "AMP101", "measured", "steps 0 to 32", "GradScaler("):
        assert part in finding
    page.locator(".finding summary", has_text="What does this mean?").click()
    assert page.locator(".finding .rule h4").count() >= 3
    assert "faster-precision" in page.inner_text("main")


def test_json_cannot_leave_its_element() -> None:
    text = str(json_text({"</script>": "<!--\u2028&"}))
    assert not set("<>&\u2028") & set(text)
    assert str(escaped_json('"plain"')) == '"plain"'


def test_a_file_is_replaced_only_when_asked(tmp_path: Path, sample_runs: Path) -> None:
    out = tmp_path / "report.html"
    out.write_text("mine")
    with pytest.raises(OutputExistsError, match="exists already"):
        write_report(sample_runs / "bert_fp32", out)
    assert out.read_text() == "mine"
    assert write_report(sample_runs / "bert_fp32", out, force=True).bytes > 100_000
    with pytest.raises(OutputNotWritableError):
        write_report(sample_runs / "bert_fp32", tmp_path)
    with pytest.raises(OutputNotWritableError):
        write_report(sample_runs / "bert_fp32", tmp_path / "nowhere" / "report.html")
    with pytest.raises(AmpDoctorError, match="no language"):
        write_report(sample_runs / "bert_fp32", tmp_path / "x.html", lang="xx")


def test_the_command_writes_it_and_says_how_large_it_is(
    tmp_path: Path, sample_runs: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert invoke(["report", str(sample_runs / "bert_fp32")]) == 0
    assert "MiB" in capsys.readouterr().err
    assert (tmp_path / "bert_fp32-report.html").is_file()
    assert invoke(["report", str(sample_runs / "bert_fp32")]) == 2
    assert "--force" in capsys.readouterr().err
    assert invoke(["report", str(tmp_path), "-o", "other.html"]) == 2
