"""The errors that ampdoctor raises on purpose.

Each carries one clear line for the person, a hint on what to do next and the exit code of the command.
Anything else that escapes is a defect of ours and exits with 3 (DESIGN §8).
"""

from __future__ import annotations


class AmpDoctorError(Exception):
    """Bad usage or bad input, told in one line.

    Args:
        message: what is wrong, as one sentence.
        hint: what the person can do about it; may be empty.
        exit_code: process exit code of the command that fails with this error.
    """

    def __init__(self, message: str, hint: str = "", exit_code: int = 2) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.exit_code = exit_code


class RunNotFoundError(AmpDoctorError):
    """The path is missing or is not a folder that ampdoctor wrote."""


class TraceCorruptError(AmpDoctorError):
    """A table of the run exists but is not a readable Arrow stream - not raised for a cut one."""


class SchemaVersionError(AmpDoctorError):
    """The run was written by a schema version that this release cannot read."""


class OutputExistsError(AmpDoctorError):
    """The output folder already holds something; nothing is overwritten without `--force`."""


class OutputNotWritableError(AmpDoctorError):
    """The output folder cannot be created or written."""


class ConfigError(AmpDoctorError):
    """`[tool.ampdoctor]` holds an unknown key or a bad value."""


class UnknownRuleError(AmpDoctorError):
    """No rule of that name or code."""
