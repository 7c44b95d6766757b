"""What the dashboard says, in the languages that it speaks. English is written where it is said; others are in files.

A catalogue is a JSON object from English to the other language. `{name}` stands for what is filled in. Every file of a
language's folder is part of its catalogue; a test says what is missing.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING

from ampdoctor.errors import AmpDoctorError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

ENGLISH = "en"

LANGUAGES = {ENGLISH: "English", "zh": "简体中文"}
"""Languages by their code, each called by its own name."""


@dataclass(frozen=True)
class Words:
    """Says things in one language.

    Args:
        lang: its code.
        catalogue: from English to it; nothing for English.
    """

    lang: str = ENGLISH
    catalogue: Mapping[str, str] = field(default_factory=dict)

    def __call__(self, english: str, /, **values: object) -> str:
        """Return `english` in this language (as it is where the catalogue lacks it), with `values` filled in."""
        said = self.catalogue.get(english, english)
        return said.format(**values) if values else said


def words_of(lang: str) -> Words:
    """Return the words of a language; English ones where it is unknown."""
    return Words(lang, _catalogue(lang)) if lang in LANGUAGES and lang != ENGLISH else Words()


def check_language(lang: str) -> None:
    """Refuse a language that the dashboard does not speak.

    Raises:
        AmpDoctorError: it does not.
    """
    if lang and lang not in LANGUAGES:
        raise AmpDoctorError(f"there is no language {lang!r}", hint=f"there are {', '.join(LANGUAGES)}")


def preferred(asked: Iterable[str]) -> str:
    """Return the first language of `asked` (`zh-CN`, `en-GB`) that the dashboard speaks; English without any."""
    codes = (tag.split("-")[0].split("_")[0].lower() for tag in asked)
    return next((code for code in codes if code in LANGUAGES), ENGLISH)


@cache
def _catalogue(lang: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for file in sorted(resources.files(__name__).joinpath(lang).iterdir(), key=lambda f: f.name):
        if file.name.endswith(".json"):
            found |= json.loads(file.read_text(encoding="utf-8"))
    return found
