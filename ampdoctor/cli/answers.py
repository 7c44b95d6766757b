"""The formats of commands that answer a question."""

from __future__ import annotations

from enum import Enum


class AnswerFormat(str, Enum):
    """How the answer is printed."""

    TEXT = "text"
    JSON = "json"
