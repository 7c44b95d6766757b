"""A run as a notebook shows it."""

from __future__ import annotations

import subprocess
import sys
from html.parser import HTMLParser
from typing import TYPE_CHECKING

from ampdoctor.trace.builder import RunBuilder

if TYPE_CHECKING:
    from ampdoctor.trace.run import Run

SCRIPT = "<script>alert(1)</script>"


class _Seen(HTMLParser):
    """Collects tags and text, and sees that every tag is closed."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.open: list[str] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.tags.append(tag)
        if tag != "br":
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def _seen(run: Run) -> _Seen:
    seen = _Seen()
    seen.feed(run._repr_html_())
    assert seen.open == []
    return seen


def _scaled(module: str = "head") -> Run:
    builder = RunBuilder(device=f"cuda: {SCRIPT}").step(loss=float("nan"))
    return builder.values(module, "activation", [float("nan")] * 4, inputs_finite=True).build()


def test_it_says_verdict_status_steps_and_findings() -> None:
    seen = _seen(_scaled())
    assert "complete" in seen.text
    assert "1 step" in seen.text
    assert set(seen.tags) <= {"div", "b", "ul", "li", "code", "span", "br"}


def test_names_from_a_trace_are_text() -> None:
    run = _scaled(SCRIPT)
    assert SCRIPT not in run._repr_html_()
    assert SCRIPT in _seen(run).text


def test_a_run_is_one_line() -> None:
    assert repr(RunBuilder().step().build()) == "<ampdoctor run in memory: complete, 1 step>"
    assert "\n" not in repr(_scaled("a\nb"))


def test_it_needs_neither_torch_nor_the_dashboard() -> None:
    code = (
        "import sys; from ampdoctor.trace.builder import RunBuilder; RunBuilder().step().build()._repr_html_(); "
        "assert not {'torch', 'dash', 'plotly', 'ampdoctor_dashboard'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
