"""Says what in a model can't be planned, and what to do about it."""

from __future__ import annotations

import contextlib
import logging
import sys
import traceback
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch._subclasses import fake_tensor

from ampdoctor.errors import AmpDoctorError

if TYPE_CHECKING:
    from collections.abc import Iterator

_NOT_USERS = (str(Path(torch.__file__).parent), str(Path(__file__).parents[2]))

_VALUE = (
    "a step is planned without values: leave out what looks at them (.item(), .tolist(), `if tensor:`, masks as "
    "indices) while torch._guards.detect_fake_mode() is not None, or plan a variant of the model without it"
)

_KERNEL = (
    "the operation can't be planned: plan a variant of the model that does without it, such as one without the kernel"
)

_DEFAULT = "it runs on fake tensors, which have shapes and dtypes but no values; does it train as it is?"

_OTHER_DEVICE = "cuda"

_DEVICE = "leave out the device: the plan follows CUDA's rules, but its tensors say that they are on the CPU"

_LOGGER = logging.getLogger(fake_tensor.__name__)


@contextlib.contextmanager
def told(what: str, hint: str = _DEFAULT) -> Iterator[None]:
    """Turn errors of the user's code into one that names what failed; what it prints goes to stderr."""
    _LOGGER.disabled, before = True, _LOGGER.disabled  # torch would print a traceback of its own
    try:
        with contextlib.redirect_stdout(sys.stderr):
            yield
    except AmpDoctorError:
        raise
    except (fake_tensor.DataDependentOutputException, fake_tensor.DynamicOutputShapeException) as error:
        raise AmpDoctorError(
            f"{what} needs the values of a tensor: {error.func}{_where(error)}", hint=_VALUE
        ) from error
    except fake_tensor.UnsupportedOperatorException as error:
        raise AmpDoctorError(
            f"{what} uses {error.func}, which has no fake version{_where(error)}", hint=_KERNEL
        ) from error
    except (Exception, SystemExit) as error:
        said = _said(error)
        raise AmpDoctorError(
            f"{what} fails: {said}{_where(error)}", hint=_DEVICE if _OTHER_DEVICE in said.lower() else hint
        ) from error
    finally:
        _LOGGER.disabled = before


def _said(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__


def _where(error: BaseException) -> str:
    """Return the line of the user's code that it came from."""
    frames = traceback.extract_tb(error.__traceback__)
    users = [
        f for f in frames if not f.filename.startswith((*_NOT_USERS, "<")) and "torch" not in Path(f.filename).parts
    ]
    return f" ({Path(users[-1].filename).name}:{users[-1].lineno})" if users else ""
