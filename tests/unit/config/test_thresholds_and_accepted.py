"""`[tool.ampdoctor]`: what it can say, and that what it can't say is an error that names the file."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ampdoctor.config import Config, Ignore, load_config, rules_in_force
from ampdoctor.errors import ConfigError
from ampdoctor.rules import discover

if TYPE_CHECKING:
    from pathlib import Path


def _write(folder: Path, text: str) -> Path:
    (folder / "pyproject.toml").write_text(text, encoding="utf-8")
    return folder


def test_without_a_file_the_defaults_hold(tmp_path: Path) -> None:
    assert load_config(_write(tmp_path, "")) == Config()
    assert load_config(_write(tmp_path, "[tool.other]\nx = 1\n")) == Config()


def test_thresholds_and_accepted_findings_are_read(tmp_path: Path) -> None:
    config = load_config(
        _write(
            tmp_path,
            """
            [tool.ampdoctor.rules.scale-hunting]
            rounds = 5
            skipped_share = 0.1

            [[tool.ampdoctor.ignore]]
            rule = "AMP301"
            site = "head.*"
            reason = "distilled later"
            """,
        )
    )
    assert config.thresholds == {"scale-hunting": {"rounds": 5.0, "skipped_share": 0.1}}
    assert config.ignore == (Ignore("lost-updates", "distilled later", "head.*"),)


def test_the_nearest_file_above_counts(tmp_path: Path) -> None:
    _write(tmp_path, '[[tool.ampdoctor.ignore]]\nrule = "lost-updates"\nreason = "known"\n')
    inner = tmp_path / "experiments" / "one"
    inner.mkdir(parents=True)
    assert len(load_config(inner).ignore) == 1
    assert load_config(_write(inner, "")).ignore == ()


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("not toml", "not readable"),
        ("[tool.ampdoctor]\nrule = 1\n", "unknown key rule in tool.ampdoctor"),
        ("[tool.ampdoctor.rules.no-such-rule]\n", "no rule 'no-such-rule'"),
        ("[tool.ampdoctor.rules.scale-hunting]\nround = 1\n", "unknown key round"),
        ('[tool.ampdoctor.rules.scale-hunting]\nrounds = "3"\n', "must be a number, not '3'"),
        ("[tool.ampdoctor.rules.scale-hunting]\nrounds = true\n", "must be a number, not True"),
        *(
            (f"[tool.ampdoctor.rules.scale-hunting]\nrounds = {v}\n", "finite and at least 0")
            for v in ("nan", "inf", "-inf", "-1")
        ),
        ("[tool.ampdoctor.rules]\nscale-hunting = 3\n", "must be a table"),
        ("[tool.ampdoctor]\nrules = 3\n", "tool.ampdoctor.rules must be a table"),
        ("[tool]\nampdoctor = 3\n", "tool.ampdoctor must be a table"),
        ("[tool.ampdoctor]\nignore = 3\n", "must be a list of tables"),
        ('[tool.ampdoctor]\nignore = ["x"]\n', "must be a table"),
        ('[[tool.ampdoctor.ignore]]\nrule = "lost-updates"\n', "needs a reason"),
        ('[[tool.ampdoctor.ignore]]\nreason = "x"\n', "needs a rule"),
        ('[[tool.ampdoctor.ignore]]\nrule = "x"\nreason = "y"\n', "no rule 'x'"),
        ('[[tool.ampdoctor.ignore]]\nrule = "lost-updates"\nreason = "y"\nwhy = 1\n', "unknown key why"),
    ],
)
def test_a_mistake_is_one_clear_line(tmp_path: Path, text: str, named: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_config(_write(tmp_path, text))
    assert named in caught.value.message
    assert str(tmp_path / "pyproject.toml") in caught.value.message
    assert "\n" not in caught.value.message
    assert caught.value.exit_code == 2


def test_an_unknown_key_is_told_with_those_there_are(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        load_config(_write(tmp_path, "[tool.ampdoctor.rules.scale-hunting]\nround = 1\n"))
    assert "rounds" in caught.value.hint


def test_a_mistyped_rule_is_guessed(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        load_config(_write(tmp_path, "[tool.ampdoctor.rules.scale-huntin]\nrounds = 1\n"))
    assert caught.value.hint.startswith("did you mean scale-hunting?")


def test_a_file_that_is_no_text_is_told(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError):
        load_config(tmp_path)


def test_every_rule_is_in_force_with_its_thresholds() -> None:
    rules = rules_in_force(Config(thresholds={"scale-hunting": {"rounds": 9.0}}))
    assert [type(rule) for rule in rules] == list(discover())
    hunting = next(rule for rule in rules if rule.name == "scale-hunting")
    assert hunting.threshold("rounds") == 9.0
    assert hunting.threshold("skipped_share") == type(hunting).thresholds["skipped_share"].value
