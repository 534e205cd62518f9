"""What whole blocks waste: the unfilled end of a sequence's last block, against block size."""

from __future__ import annotations

import numpy as np

from kvplan.lengths import Lengths, clipped
from kvplan.units import ceil_div

SHORT_LIST = 1_000
"""Lengths up to which a workload is a list of requests to be taken in turn."""


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
    return _mean(waste(tokens, _each(block_size)), lengths.shares)


def prompt_waste(lengths: Lengths, block_size, context: int):
    """Mean of w with the prompt written and nothing generated, prompts cut to the context."""
    prompts, _ = clipped(lengths, context)
    return _mean(waste(np.ceil(prompts).astype(np.int64), _each(block_size)), lengths.shares)


def life_waste(lengths: Lengths, block_size, context: int):
    """Mean of w over the steps of a sequence, as it grows through its blocks: E[w(p + 1) + ... + w(p + o)] / E[o], cut
    to the context. Long outputs are met more often, as what a running request holds (`lengths.resident_mean`)."""
    prompts, outputs = clipped(lengths, context)
    first, last = np.rint(prompts).astype(np.int64), np.rint(prompts + outputs).astype(np.int64)
    last = np.maximum(last, first + 1)
    block_size = _each(block_size)
    wasted = _waste_up_to(last, block_size) - _waste_up_to(first, block_size)
    return _mean(wasted, lengths.shares) / _mean((last - first).astype(float), lengths.shares)


def table_entries(lengths: Lengths, block_size):
    """Mean entries of a sequence's block table, one for each block it has begun: E[ceil(S / k)] = (E[S] + E[w]) / k."""
    return (lengths.mean + expected_waste(lengths, block_size)) / block_size


def full_blocks(tokens, block_size):
    """Blocks that so many tokens fill, as many as prefix caching has to hash; of shape (sizes, tokens)."""
    return np.floor(tokens).astype(np.int64) // _each(block_size)


def reused_prefix(prefix_tokens: int, block_size):
    """Tokens of a common prefix that are found again: whole blocks of it, floor(P / k) k."""
    return prefix_tokens // block_size * block_size


def _waste_up_to(tokens, block_size):
    """w(1) + ... + w(n): k(k - 1)/2 for each whole block, and (k - 1) + (k - 2) + ... for those of the last."""
    whole, rest = tokens // block_size, tokens % block_size
    return whole * (block_size * (block_size - 1) // 2) + rest * block_size - rest * (rest + 1) // 2


def _each(block_size) -> np.ndarray:
    return np.asarray(block_size, dtype=np.int64)[..., np.newaxis]


def _mean(values: np.ndarray, shares: np.ndarray):
    mean = values @ shares
    return float(mean) if mean.ndim == 0 else mean


def booked_share(wasted, held):
    """Share of booked slots that hold no token; 0 where nothing is booked."""
    share = wasted / np.maximum(wasted + held, np.finfo(float).tiny)
    return float(share) if np.ndim(share) == 0 else share
