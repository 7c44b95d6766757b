"""Which file the settings come from."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ampdoctor.config import Config, load_config
from ampdoctor.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path

OWN = '[gate]\nfail-on = "error"\n'
SHARED = '[tool.ampdoctor.gate]\nfail-on = "note"\n'


def _write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def test_a_file_of_our_own_needs_no_section(tmp_path: Path) -> None:
    _write(tmp_path / "ampdoctor.toml", OWN + "[rules.scale-hunting]\nrounds = 5\n")
    config = load_config(tmp_path)
    assert config.gate.fail_on == "error"
    assert config.thresholds == {"scale-hunting": {"rounds": 5.0}}
    assert config.path == tmp_path / "ampdoctor.toml"


@pytest.mark.parametrize("near", ["ampdoctor.toml", "pyproject.toml"])
def test_the_nearest_of_either_kind_counts(tmp_path: Path, near: str) -> None:
    texts = {"ampdoctor.toml": OWN, "pyproject.toml": SHARED}
    far = next(name for name in texts if name != near)
    _write(tmp_path / far, texts[far])
    inner = _write(tmp_path / "inner" / near, texts[near]).parent
    assert load_config(inner).path == inner / near
    assert load_config(tmp_path).path == tmp_path / far


def test_a_pyproject_without_our_section_may_stand_beside_our_file(tmp_path: Path) -> None:
    _write(tmp_path / "pyproject.toml", "[tool.other]\nx = 1\n")
    _write(tmp_path / "ampdoctor.toml", OWN)
    assert load_config(tmp_path).gate.fail_on == "error"


def test_settings_in_both_files_of_a_folder_are_an_error(tmp_path: Path) -> None:
    _write(tmp_path / "pyproject.toml", SHARED)
    _write(tmp_path / "ampdoctor.toml", OWN)
    with pytest.raises(ConfigError, match=r"in both ampdoctor\.toml and pyproject\.toml") as caught:
        load_config(tmp_path)
    assert "move" in caught.value.hint


def test_without_any_file_the_defaults_hold(tmp_path: Path) -> None:
    assert load_config(tmp_path / "nowhere") == Config()


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("rule = 1\n", "unknown key rule in the file"),
        ("[tool.ampdoctor.gate]\n", "unknown key tool in the file"),
        ("rules = 3\n", "rules must be a table"),
        ("ignore = 3\n", "ignore must be a list of tables"),
    ],
)
def test_its_keys_are_named_as_they_are_written(tmp_path: Path, text: str, named: str) -> None:
    path = _write(tmp_path / "ampdoctor.toml", text)
    with pytest.raises(ConfigError) as caught:
        load_config(tmp_path)
    assert caught.value.message.startswith(f"{path}: {named}")
