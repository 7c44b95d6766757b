"""A run as one self-contained HTML file: for an e-mail, for a CI artifact.

`write_report` makes it. Nothing in the file is loaded from elsewhere, and its own policy forbids it.
"""

from ampdoctor_dashboard.report.written import Written, write_report

__all__ = ["Written", "write_report"]
