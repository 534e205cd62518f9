"""What a token of the cache costs, spelt out: for each kind of layer the factors that multiply to its bytes.

The invariant: the bytes of the terms add up to `cache.bytes_per_token`, whatever the architecture.
"""

from __future__ import annotations

from fractions import Fraction
from typing import NamedTuple

from kvplan.cache import Store, grows, heads_per_rank, staged, stores
from kvplan.catalog import Setting
from kvplan.specs import ATTENTION_KINDS, LayerGroup
from kvplan.units import DTYPES


class Term(NamedTuple):
    """One product: its factors as text, and the bytes each token adds by it on a device of the fullest stage."""

    factors: str
    size_bytes: Fraction


def token_terms(setting: Setting) -> tuple[Term, ...]:
    """The products that add up to what one token takes for good on a device of the fullest pipeline stage; none where
    no layer grows with its tokens. Copies of replicated heads count, and dcp does not divide, as in
    `cache.bytes_per_token`.
    """
    structure = setting.structure
    growing = [
        (group, store, layers)
        for group, layers in staged(structure)
        for store in stores(group, structure)
        if grows(store, structure)
    ]
    stages = range(structure.plan.pp)
    totals = [sum((_each(store) * layers[stage] for _, store, layers in growing), Fraction(0)) for stage in stages]
    fullest = max(stages, key=totals.__getitem__)
    return tuple(
        Term(_factors(group, store, layers[fullest], setting), _each(store) * layers[fullest])
        for group, store, layers in growing
        if layers[fullest]
    )


def _each(store: Store) -> Fraction:
    """Bytes a token adds in one layer."""
    return Fraction(store.bits, 8 * store.ratio)


def _factors(group: LayerGroup, store: Store, layers: int, setting: Setting) -> str:
    number = f"{layers} layer{'' if layers == 1 else 's'}"
    if store.part in ATTENTION_KINDS:
        return _keys_and_values(group, store, number, setting)
    if store.part == "mla" and store.bits == group.head_dim * DTYPES[setting.kv_dtype].bits:
        return f"{number} × {group.head_dim} latent × {_width(DTYPES[setting.kv_dtype].bits)}"
    what = {"mla": " packed latent", "index": " index key", "entries": " entry"}.get(store.part, "")
    every = f" / {store.ratio} tokens" if store.ratio > 1 else ""
    return f"{number} × {_width(store.bits)}{what}{every}"


def _keys_and_values(group: LayerGroup, store: Store, number: str, setting: Setting) -> str:
    """Key and value as one factor of 2 where they are alike, else as a sum; scales are what the store has beyond."""
    heads, k, v = heads_per_rank(group.kv_heads, setting.plan.tp), DTYPES[setting.kv_dtype], DTYPES[setting.v_dtype]
    key_bits, value_bits = group.head_dim * k.bits, group.value_head_dim * v.bits
    scale_bits = store.bits // heads - key_bits - value_bits
    named = f"{heads} KV head{'' if heads == 1 else 's'}"
    if key_bits == value_bits and k.bits == v.bits and not scale_bits:
        return f"2 × {number} × {named} × {group.head_dim} × {_width(k.bits)}"
    scales = f" + {_width(scale_bits)} scales" if scale_bits else ""
    key, value = f"{group.head_dim} × {_width(k.bits)}", f"{group.value_head_dim} × {_width(v.bits)}"
    return f"{number} × {named} × ({key} + {value}{scales})"


def _width(bits: int) -> str:
    """Bits as bytes, without decimals where they are whole."""
    return f"{bits / 8:,g} B"
