"""The few operations that Python and numpy spell differently, so that one formula serves a number and an array of them.

Numbers stay Python's own, integers exact at any size; arrays are int64, float64 or bool, and broadcast. Both give the
same bits as long as integers stay below 2^53, up to which a float holds every one.
"""

from __future__ import annotations

import math
from bisect import bisect_right

import numpy as np


def minimum(a, b):
    """The smaller of two."""
    return np.minimum(a, b) if isinstance(a, np.ndarray) or isinstance(b, np.ndarray) else min(a, b)


def maximum(a, b):
    """The larger of two."""
    return np.maximum(a, b) if isinstance(a, np.ndarray) or isinstance(b, np.ndarray) else max(a, b)


def choose(condition, yes, no):
    """`yes` where the condition holds, else `no`; both are computed."""
    if isinstance(condition, np.ndarray):
        return np.where(condition, yes, no)
    return yes if condition else no


def floor(value):
    """Whole numbers, rounded down."""
    return np.floor(value).astype(np.int64) if isinstance(value, np.ndarray) else math.floor(value)


def ceil(value):
    """Whole numbers, rounded up."""
    return np.ceil(value).astype(np.int64) if isinstance(value, np.ndarray) else math.ceil(value)


def rounded(value):
    """The nearest whole numbers, halves to the even one.

    >>> rounded(2.5), rounded(np.array([0.5, 1.5])).tolist()
    (2, [0, 2])
    """
    return np.rint(value).astype(np.int64) if isinstance(value, np.ndarray) else round(value)


def position(ascending: list, value):
    """How many of a list in ascending order are at most `value`."""
    return (
        np.searchsorted(ascending, value, side="right")
        if isinstance(value, np.ndarray)
        else bisect_right(ascending, value)
    )


def or_none(value):
    """None for a number that is 0; arrays as they are, in which 0 stands for none."""
    return value if isinstance(value, np.ndarray) else value or None


def every(condition) -> bool:
    """Whether a condition holds everywhere."""
    return bool(condition.all()) if isinstance(condition, np.ndarray) else bool(condition)
