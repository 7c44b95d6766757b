"""What pytest is not to collect here."""

from __future__ import annotations

# A project of a user's own, with its tests, which `test_ci_page` runs as a user does.
collect_ignore = ["sample_project"]
