"""A plugin of pytest: trains under the recorder, and fails the test whose training loses precision.

Every pytest run of an environment that holds ampdoctor loads this module. It imports pytest and nothing else, and what
it needs to record and to judge is loaded by the first test that uses the fixture. PYTEST_DONT_REWRITE
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator
    from typing import Any

    from ampdoctor.pytest_plugin.recordings import Recordings

MARKER = """\
ampdoctor(max_METRIC=..., min_METRIC=..., sites=..., baseline=..., fail_on=..., select=..., ignore=...): \
check what the fixture `ampdoctor` has recorded in the test as `ampdoctor check` would."""

PROPERTY = "ampdoctor"
"""Name of the property of a test's report that holds what was recorded, as JSON: it also comes from xdist's workers."""

_RECORDINGS = pytest.StashKey["Recordings"]()
_FAILED = pytest.StashKey[bool]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add our one option."""
    parser.getgroup("ampdoctor").addoption(
        "--ampdoctor-dir",
        metavar="DIR",
        help="Keep the traces of failed tests below DIR, one folder a recording; by default none are kept.",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Make the marker known."""
    config.addinivalue_line("markers", MARKER)


@pytest.fixture(name="ampdoctor")
def ampdoctor_fixture(request: pytest.FixtureRequest) -> Iterator[Recordings]:
    """Record trainings: `with ampdoctor.watch(model) as rec: train()`, then `rec.assert_...`."""
    from ampdoctor.pytest_plugin.recordings import Recordings

    config, node = request.config, request.node
    to = config.getoption("--ampdoctor-dir")
    below = config.invocation_params.dir / to if to else None
    made = node.stash[_RECORDINGS] = Recordings(node.nodeid, node.path.parent, config.rootpath, below)
    yield made
    made.close(failed=node.stash.get(_FAILED, False))


@pytest.hookimpl(trylast=True)
def pytest_runtest_call(item: pytest.Item) -> None:
    """Check the marker, once the test itself has passed."""
    if item.get_closest_marker("ampdoctor") is None:
        return
    from ampdoctor.pytest_plugin.marker import check_marked

    said: dict[str, Any] = {}
    for mark in reversed([*item.iter_markers("ampdoctor")]):
        if mark.args:
            pytest.fail("the marker `ampdoctor` takes keywords only, as in max_flushed=0.01", pytrace=False)
        said.update(mark.kwargs)
    complaint = check_marked(said, item.stash.get(_RECORDINGS, None))
    if complaint:
        pytest.fail(complaint, pytrace=False)


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Generator[None, Any, None]:
    """Put what was recorded into the report, and where the trace of a failed test is."""
    made = item.stash.get(_RECORDINGS, None)
    if made is not None and call.when == "call":
        item.user_properties += [(PROPERTY, told) for told in made.told(failed=call.excinfo is not None)]
    outcome = yield
    report = outcome.get_result()
    if made is not None and report.failed:
        item.stash[_FAILED] = True
        report.sections += [("ampdoctor", made.whereabouts())] if made.whereabouts() else []


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say what was recorded; nothing where nothing was."""
    told = [
        (report.nodeid, value)
        for reports in terminalreporter.stats.values()
        for report in reports
        if getattr(report, "when", "") == "call"
        for name, value in report.user_properties
        if name == PROPERTY
    ]
    if told:
        from ampdoctor.pytest_plugin.summary import summary

        terminalreporter.section("ampdoctor")
        for line in summary(told):
            terminalreporter.write_line(line)
