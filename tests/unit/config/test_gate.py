"""Settings of the gate: from the file, under the command line, and what they can't be."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from ampdoctor.config import Config, GateSettings, load_config, settings_text
from ampdoctor.errors import AmpDoctorError, ConfigError
from ampdoctor.finding import Severity
from ampdoctor.gate.policy import Policy, parse_limit
from ampdoctor.gate.settings import policy_of

if TYPE_CHECKING:
    from pathlib import Path

TEXT = """
[tool.ampdoctor.gate]
fail-on = "error"
select = ["AMP1*", "lost-updates"]
ignore = ["amp-slower"]
baseline = "ci/baseline.json"
baseline-missing = "ok"
max = { flushed = "1%", "flushed@encoder.*" = 0.005, memory = "4GiB" }
"""


def _config(folder: Path, text: str = TEXT) -> Config:
    (folder / "pyproject.toml").write_text(text, encoding="utf-8")
    return load_config(folder)


def test_the_section_becomes_a_policy(tmp_path: Path) -> None:
    gate = _config(tmp_path).gate
    limits = tuple(map(parse_limit, ("flushed=1%", "flushed@encoder.*=0.005", "memory=4GiB")))
    assert policy_of(gate) == Policy(Severity.ERROR, limits, ("AMP1*", "lost-updates"), ("amp-slower",))
    assert gate.baseline == str(tmp_path / "ci" / "baseline.json")
    assert gate.baseline_missing == "ok"


def test_without_settings_the_policy_is_the_default_one() -> None:
    assert policy_of(GateSettings()) == Policy()


def test_the_command_line_goes_first(tmp_path: Path) -> None:
    gate = _config(tmp_path).gate.over(fail_on="never", limits=["flushed = 5%", "skipped=0"], select=["AMP2*"])
    policy = policy_of(gate)
    assert policy.fail_on is None
    assert policy.select == ("AMP2*",)
    assert policy.ignore == ("amp-slower",)
    assert [limit.text for limit in policy.limits] == [
        "flushed=5%",
        "flushed@encoder.*=0.005",
        "memory=4GiB",
        "skipped=0",
    ]


def test_what_the_command_line_leaves_out_stays(tmp_path: Path) -> None:
    gate = _config(tmp_path).gate
    assert gate.over(fail_on=None, select=[], ignore=(), baseline=None, baseline_missing="", limits=()) == gate


@pytest.mark.parametrize(
    ("text", "named", "hint"),
    [
        ("[tool.ampdoctor.gate]\nfail_on = 'error'\n", "unknown key fail_on in tool.ampdoctor.gate", "fail-on"),
        ("[tool.ampdoctor]\ngate = 1\n", "tool.ampdoctor.gate must be a table", ""),
        ("[tool.ampdoctor.gate]\nfail-on = 'fatal'\n", "fail-on can't be 'fatal'", "error, warning, note, never"),
        ("[tool.ampdoctor.gate]\nfail-on = 1\n", "fail-on can't be 1", "never"),
        ("[tool.ampdoctor.gate]\nbaseline-missing = true\n", "baseline-missing can't be True", "fail, ok"),
        ("[tool.ampdoctor.gate]\nselect = 'AMP1*'\n", "must be a list of rules", "select = ["),
        ("[tool.ampdoctor.gate]\nignore = [1]\n", "must be a text, not 1", ""),
        ("[tool.ampdoctor.gate]\nbaseline = ''\n", "baseline must be a text", ""),
        ("[tool.ampdoctor.gate]\nmax = '1%'\n", "max must be a table", ""),
        ("[tool.ampdoctor.gate.max]\nflushed = true\n", "max.flushed must be a number or a text", "'1%'"),
        ("[tool.ampdoctor.gate.max]\nflushed.encoder = 1\n", "max.flushed must be a number or a text", "quotes"),
    ],
)
def test_a_mistake_is_one_clear_line(tmp_path: Path, text: str, named: str, hint: str) -> None:
    with pytest.raises(ConfigError) as caught:
        _config(tmp_path, text)
    assert caught.value.message.startswith(str(tmp_path / "pyproject.toml"))
    assert named in caught.value.message
    assert hint in caught.value.hint


@pytest.mark.parametrize(
    ("said", "named", "hint"),
    [
        ({"limits": ["flushd=1%"]}, "unknown metric 'flushd'", "flushed"),
        ({"limits": ["flushed"]}, "'flushed' is no limit", "METRIC=VALUE"),
        ({"limits": ["flushed="]}, "'flushed' is no limit", "METRIC=VALUE"),
        ({"limits": ["skipped@head=1%"]}, "skipped is not told by site", "flushed"),
        ({"limits": ["flushed=130"]}, "a share is at most 1", "130%"),
        ({"select": ["AMP999"]}, "no rule matches 'AMP999'", "AMP1*"),
        ({"ignore": ["gradient-underflw"]}, "no rule matches", "ampdoctor explain"),
        ({"fail_on": "fatal"}, "fail-on can't be 'fatal'", "never"),
        ({"baseline_missing": "maybe"}, "baseline-missing can't be 'maybe'", "fail, ok"),
    ],
)
def test_an_impossible_value_says_where_it_was_written(said: dict[str, list[str]], named: str, hint: str) -> None:
    for origin, start in (("command line", ""), ("ci.toml", "ci.toml: ")):
        with pytest.raises(AmpDoctorError) as caught:
            policy_of(GateSettings().over(origin, **said))
        assert caught.value.message.startswith(start + named) or named in caught.value.message
        assert caught.value.message.startswith(start)
        assert hint in caught.value.hint


def test_all_settings_are_shown_with_where_they_come_from(tmp_path: Path) -> None:
    config = _config(tmp_path, TEXT + "[tool.ampdoctor.rules.scale-hunting]\nrounds = 5\n")
    config = replace(config, gate=config.gate.over(limits=["flushed=2%"], baseline_missing="fail"))
    shown = {line.split("  # ")[0].strip(): line.split("  # ")[-1] for line in settings_text(config).splitlines()}
    file = str(tmp_path / "pyproject.toml")
    assert shown['fail-on = "error"'] == file
    assert shown['"flushed" = "2%"'] == "command line"
    assert shown['"flushed@encoder.*" = "0.005"'] == file
    assert shown['baseline-missing = "fail"'] == "command line"
    assert shown["rounds = 5.0"].startswith(f"{file} (default: ")
    assert settings_text(Config()).count("# default") > 10


def test_what_is_shown_is_a_file_that_says_the_same(tmp_path: Path) -> None:
    config = _config(tmp_path, TEXT + '[[tool.ampdoctor.ignore]]\nrule = "lost-updates"\nreason = "say \\"so\\""\n')
    other = tmp_path / "other"
    other.mkdir()
    (other / "ampdoctor.toml").write_text(settings_text(config), encoding="utf-8")
    again = load_config(other)
    assert (again.gate, again.ignore) == (config.gate, config.ignore)
    assert settings_text(again).splitlines()[2].startswith("[gate]")
