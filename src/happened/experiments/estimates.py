"""The mean of a measure over the seeds of a study, with its 95 % confidence interval."""

from collections.abc import Sequence
from math import sqrt
from statistics import NormalDist, fmean, stdev
from typing import NamedTuple

# Student's t, two-sided 95 %, by degrees of freedom; beyond these `_student_t` expands the normal quantile.
_T = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228)


class Estimate(NamedTuple):
    mean: float
    error: float  # half the 95 % confidence interval; 0 with a single seed, which gives none


def estimate(samples: Sequence[float]) -> Estimate:
    freedom = len(samples) - 1
    error = _student_t(freedom) * stdev(samples) / sqrt(len(samples)) if freedom else 0.0
    return Estimate(fmean(samples), error)


def _student_t(freedom: int) -> float:
    if freedom <= len(_T):
        return _T[freedom - 1]
    z = NormalDist().inv_cdf(0.975)
    return z + (z**3 + z) / (4 * freedom)
