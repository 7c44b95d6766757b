"""Tensor -> one row of statistics, on the tensor's own device and without a sync.

Every implementation returns the same vector, so that the recorder can gather the vectors of a step and fetch them in
one transfer (`layout`). `torch_ops` is the reference that is always there.
"""

from ampdoctor.record.stats.cpu import all_finite, compared, described_as_it_is
from ampdoctor.record.stats.device import fast_vector
from ampdoctor.record.stats.layout import EXTRA, HEADER, HIGHEST, LOWEST, Statistics, decode
from ampdoctor.record.stats.table import Measured, StatisticsTable
from ampdoctor.record.stats.torch_ops import measurable, statistics_vector
from ampdoctor.record.stats.triton_kernel import warm_up

__all__ = [
    "EXTRA",
    "HEADER",
    "HIGHEST",
    "LOWEST",
    "Measured",
    "Statistics",
    "StatisticsTable",
    "all_finite",
    "compared",
    "decode",
    "described_as_it_is",
    "fast_vector",
    "measurable",
    "statistics_vector",
    "warm_up",
]
