"""What torch says when precision ends a training: wordings by family.

Collected from torch's source (2.4 to 2.13: c10/util/Exception users in aten, torch/amp, torch/nn) and from public
issues. Names of dtypes are written in four ways: Half, c10::Half, torch.float16, torch.cuda.HalfTensor.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ampdoctor.formats import HALF_DTYPES

if TYPE_CHECKING:
    from collections.abc import Iterator

CONSTANT = re.compile(
    r"value cannot be converted to type (?:at::|c10::)?(?P<dtype>Half|BFloat16|Float8_\w+) without overflow"
    r"(?::\s*(?P<value>[-+.\dinfae]+))?"
)
"""A Python number is put into a tensor that can't hold it; older versions of torch tell the number."""

FP16_GRADIENTS = re.compile(r"Attempting to unscale FP16 gradients")
UNSCALED_ALREADY = re.compile(r"unscale_\(\) has already been called on this optimizer")
UNSCALED_AFTER_STEP = re.compile(r"unscale_\(\) is being called after step\(\)")
STEPPED_ALREADY = re.compile(r"step\(\) has already been called since the last update\(\)")
NO_INF_CHECKS = re.compile(r"No inf checks were recorded (?P<when>for this optimizer|prior to update)")
ANOMALY = re.compile(r"Function '(?P<node>\w+)' returned nan values in its (?P<output>\d+)th output")

_NAMES = {
    "half": "float16", "float16": "float16", "bfloat16": "bfloat16", "float": "float32", "float32": "float32",
    "double": "float64", "float64": "float64",
}  # fmt: skip
_DTYPE = re.compile(
    r"(?<![\w.])(?:at::|c10::|torch\.(?:cuda\.)?)?"
    r"(Half|BFloat16|Float|Double|half|bfloat16|float16|float32|float64|float|double)(?:Tensor)?(?![\w:])"
)
_MISMATCH = re.compile(
    r"expected (?:object of )?scalar type|mixed dtype|Found dtype|expected dtype"
    r"|(?:same|share same) (?:scalar )?(?:d|data ?)?types?\b|should be the same|must be the same"
    r"|does not (?:match|equal)"
    r"|dtypes? match|dtype to be equal|same dtypes|Type promoting not supported|to match query dtype"
    r"|can't be cast to the desired output type|assign a gradient with dtype|assign a gradient of type"
    r"|expected backend \w+ and dtype|only supports? (?:fp16|half|float16)|same (?:as|type as) .* but got",
    re.IGNORECASE,
)
_ABOUT_DTYPES = re.compile(r"d(?:ata )?type|mixed dtype|only supports? (?:fp16|half|float16)", re.IGNORECASE)


def dtypes_in(message: str) -> tuple[str, ...]:
    """Return the floating dtypes that `message` names, in order, each once.

    In the sentences that name two tensors, the gluing of older messages included ("gotHalf and Float").
    """
    return tuple(dict.fromkeys(_named(message.replace("gotHalf", "got Half").replace("gotFloat", "got Float"))))


def mismatched(message: str, *, half_about: bool) -> tuple[str, ...] | None:
    """Return the dtypes at odds where `message` says that two floating dtypes met, one of them in half; else None.

    Some messages name one of them or neither; with `half_about`, half precision being in use otherwise, those count
    too. Two dtypes of which none is in half are a slip that has nothing to do with mixed precision.
    """
    if not _MISMATCH.search(message):
        return None
    named = dtypes_in(message)
    if len(named) >= 2:
        return named if HALF_DTYPES & set(named) else None
    return named if half_about and _ABOUT_DTYPES.search(message) and not _INTEGERS.search(message) else None


_INTEGERS = re.compile(r"\b(?:Long|Int|Short|Byte|Char|Bool|Complex\w*|int\d+|uint\d+|int|bool|long|index|indices)\b")


def _named(message: str) -> Iterator[str]:
    for match in _DTYPE.finditer(message):
        yield _NAMES[match[1].lower()]
