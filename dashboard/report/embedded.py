"""JSON that stands in an HTML document."""

from __future__ import annotations

import json
from typing import Any

from markupsafe import Markup


def json_text(value: Any) -> Markup:
    """Return a value as JSON that can stand in a `<script>`."""
    return escaped_json(json.dumps(value))


def escaped_json(text: str) -> Markup:
    """Return JSON with everything escaped that means something to HTML: it can't end the element that it stands in."""
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return Markup(text)  # noqa: S704 - nothing that HTML knows is left in it
