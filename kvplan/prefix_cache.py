"""Prefix blocks that stay in the pool after their request: found again by their hash, evicted when room is needed.

A block that a running request refers to is in use, once for all that share it. Unused ones stay, the least recently
used first to go. They take only room that nobody needs, so admission and growth never wait for them.

Source: vLLM, automatic prefix caching; Mooncake traces name the prefix blocks of each request by hashes of 512 tokens.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Sequence

import numpy as np

from kvplan.engine import Layout

HASH_TOKENS = 512
"""Tokens behind one hash of a Mooncake trace."""
Units = tuple[int, ...]
"""The names of the pieces of a prefix, in their order."""


class PrefixCache:
    """Cached prefixes in units of `unit_tokens`, each of which takes `unit_blocks` of `num_blocks`."""

    def __init__(self, unit_tokens: int, unit_blocks: int, num_blocks: int):
        self.unit_tokens, self.unit_blocks, self.num_blocks = unit_tokens, unit_blocks, num_blocks
        self.references: dict[int, int] = {}
        self.unused: OrderedDict[int, None] = OrderedDict()

    def blocks_needed(self, units: Units) -> int:
        """Blocks that come into use with these units: those no running request refers to."""
        return self.unit_blocks * sum(unit not in self.references for unit in units)

    def found_tokens(self, units: Units) -> int:
        """Tokens of the longest prefix that is still in the pool."""
        for number, unit in enumerate(units):
            if unit not in self.references and unit not in self.unused:
                return number * self.unit_tokens
        return len(units) * self.unit_tokens

    def take(self, units: Units) -> None:
        """A request that refers to these units starts."""
        for unit in units:
            self.unused.pop(unit, None)
            self.references[unit] = self.references.get(unit, 0) + 1

    def leave(self, units: Units, computed_tokens: float = math.inf) -> int:
        """It ends, or stops after so many tokens, and the units beyond them are not in the pool; the blocks that are no
        longer in use. The end of a prefix is evicted before its beginning."""
        freed = 0
        for number in range(len(units), 0, -1):
            unit = units[number - 1]
            self.references[unit] -= 1
            if not self.references[unit]:
                del self.references[unit]
                freed += self.unit_blocks
                if number * self.unit_tokens <= computed_tokens:
                    self.unused[unit] = None
        return freed

    def evict(self, used_blocks: int) -> None:
        """Make room: unused units go until they fit beside the blocks in use."""
        while self.unused and used_blocks + self.unit_blocks * len(self.unused) > self.num_blocks:
            self.unused.popitem(last=False)


def of_prefix(prefix: int, prompts: np.ndarray, shape: Layout, num_blocks: int) -> tuple[PrefixCache, list[Units]]:
    """One prefix of so many tokens that all requests have in common whose prompt goes beyond it, and who has it. Its
    last block is shared only where it is full."""
    blocks = _growing_blocks(shape)
    tokens = min((prefix // block * block for block in blocks), default=0)
    cache = PrefixCache(tokens, sum(prefix // block for block in blocks), num_blocks)
    return cache, [(0,) if longer else () for longer in (prompts > prefix).tolist()]


def of_hashes(
    hashes: Sequence[Sequence[int]], prompts: np.ndarray, shape: Layout, num_blocks: int
) -> tuple[PrefixCache, list[Units]]:
    """Prefixes named by hashes, and which of them each prompt has: in the smallest pieces that are whole hashes and
    whole blocks of every table, and leave a token to compute."""
    blocks = _growing_blocks(shape)
    tokens = math.lcm(HASH_TOKENS, *blocks)
    cache = PrefixCache(tokens, sum(tokens // block for block in blocks), num_blocks)
    each = tokens // HASH_TOKENS
    if not blocks:
        return cache, [()] * prompts.size
    whole = np.maximum(prompts - 1, 0) // tokens * each
    return cache, [
        tuple(dict.fromkeys(own[each - 1 : end : each])) for own, end in zip(hashes, whole.tolist(), strict=True)
    ]


def _growing_blocks(shape: Layout) -> list[int]:
    """The tokens in a block of each table that grows without limit; others share nothing."""
    return [group.block_tokens * group.spec.dcp for group in shape.growing]
