"""What whole blocks waste: the unfilled end of a sequence's last block, against block size."""

from __future__ import annotations

import numpy as np

from kvplan.lengths import Lengths
from kvplan.units import ceil_div


def waste(tokens, block_size):
    """Slots booked and not filled: w(S) = k ceil(S / k) - S, below k, and 0 at k = 1. Integers or integer arrays.

    >>> waste(1000, 16), waste(1024, 16), waste(7, 1)
    (8, 0, 0)
    """
    return block_size * ceil_div(tokens, block_size) - tokens


def expected_waste(lengths: Lengths, block_size):
    """Mean of w over a distribution, in whole tokens: E[w(ceil(Q(u)))]. `block_size` a number or an array of them.

    Exact for tables and samples; about (k - 1)/2, half a block, for sequences long against k.
    """
    tokens = np.ceil(lengths.outputs).astype(np.int64)
    wasted = waste(tokens, np.asarray(block_size, dtype=np.int64)[..., np.newaxis])
    mean = wasted @ lengths.shares
    return float(mean) if mean.ndim == 0 else mean


def booked_share(wasted, held):
    """Share of booked slots that hold no token."""
    return wasted / (wasted + held)
