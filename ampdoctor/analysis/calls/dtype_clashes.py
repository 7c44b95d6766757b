"""Exceptions that say that tensors of two floating dtypes met, and between whom it was."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ampdoctor.analysis.calls.error_messages import mismatched
from ampdoctor.analysis.calls.exceptions import Failure, failures, half_about
from ampdoctor.analysis.memo import once_per_run
from ampdoctor.formats import HALF_DTYPES, format_of_dtype, title_of_dtype

if TYPE_CHECKING:
    from ampdoctor.trace.run import Run
    from ampdoctor.trace.schema import ModuleRow


@dataclass(frozen=True)
class Clash:
    """One exception of this kind.

    Attributes:
        failure: the exception.
        dtypes: the floating dtypes that its message names; most name two.
        module: the innermost module that it passed; None where there is none.
    """

    failure: Failure
    dtypes: tuple[str, ...]
    module: ModuleRow | None

    @property
    def autocast(self) -> str | None:
        """The autocast dtype in force where it was raised; None where autocast was off."""
        return self.failure.row.autocast

    @property
    def under_autocast(self) -> str | None:
        """The half dtype of the autocast that the step was made under, in force or left; None without."""
        dtype = self.failure.row.autocast or self.failure.row.last_autocast
        return dtype if dtype in HALF_DTYPES else None

    @property
    def weights(self) -> str | None:
        """The dtype of the module's own weights, where it has one."""
        own = [d for d in self.module.dtypes if format_of_dtype(d)] if self.module else []
        return own[0] if len(own) == 1 else None

    @property
    def titles(self) -> str:
        """The dtypes as people read them: "FP16 and FP32"."""
        return " and ".join(title_of_dtype(d) for d in self.dtypes[:2])


@once_per_run
def clashes(run: Run) -> tuple[Clash, ...]:
    """Return the exceptions of this kind, in order."""
    modules = {m.module: m for m in run.modules}
    about = half_about(run)
    found = []
    for failure in failures(run):
        dtypes = mismatched(failure.message, half_about=about)
        if dtypes is not None:
            path = failure.row.error_module
            found.append(Clash(failure, dtypes, modules.get(path) if path is not None else None))
    return tuple(found)


def in_custom_function(clash: Clash) -> bool:
    """Whether it came from a custom autograd.Function that autocast has to do with."""
    return clash.failure.row.custom_function is not None and clash.under_autocast is not None
