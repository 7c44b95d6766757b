"""Tensor -> one row of statistics, on the tensor's own device and without a sync.

Every implementation returns the same vector, so that the recorder can gather the vectors of a step and fetch them in
one transfer (`layout`). `torch_ops` is the reference that is always there.
"""

from ampdoctor.record.stats.copies import Copy, copied, subtract
from ampdoctor.record.stats.cpu import DTYPES, Places, all_finite, compared, note_known, places_of
from ampdoctor.record.stats.device import fast_vector
from ampdoctor.record.stats.layout import EXTRA, HEADER, HIGHEST, LOWEST, Statistics, decode
from ampdoctor.record.stats.table import FEW, Measured, StatisticsTable
from ampdoctor.record.stats.torch_ops import measurable, statistics_vector
from ampdoctor.record.stats.triton_kernel import warm_up

__all__ = [
    "DTYPES",
    "EXTRA",
    "FEW",
    "HEADER",
    "HIGHEST",
    "LOWEST",
    "Copy",
    "Measured",
    "Places",
    "Statistics",
    "StatisticsTable",
    "all_finite",
    "compared",
    "copied",
    "decode",
    "fast_vector",
    "measurable",
    "note_known",
    "places_of",
    "statistics_vector",
    "subtract",
    "warm_up",
]
