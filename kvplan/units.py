"""Units of memory, widths of stored numbers, and the only formatting of quantities.

Bytes are exact integers. 1 GiB = 2^30 bytes (memory), 1 GB = 10^9 bytes (marketing, bandwidth); both are always
written out.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from kvplan.arrays import rounded

KIB = 2**10
MIB = 2**20
GIB = 2**30
LEAST_USD = 1e-9
"""Dollars below which something costs nothing."""


@dataclass(frozen=True)
class Dtype:
    """How one number is stored: `bits` an element, and `scale_bytes` for each token and head (0 for most)."""

    bits: int
    scale_bytes: int = 0


DTYPES = {
    "bf16": Dtype(16),
    "fp16": Dtype(16),
    "fp32": Dtype(32),
    "fp8": Dtype(8),
    "fp8_e5m2": Dtype(8),
    "int8": Dtype(8),
    "int4": Dtype(4),
    # One fp32 scale for each token and head, for keys and for values alike.
    "fp8_per_token_head": Dtype(8, scale_bytes=4),
    "int8_per_token_head": Dtype(8, scale_bytes=4),
}

DTYPE_SPELLINGS = {
    "bfloat16": "bf16",
    "float16": "fp16",
    "float32": "fp32",
    "fp8_e4m3": "fp8",
    "fp8_ds_mla": "fp8",
    "f16": "fp16",
    "f32": "fp32",
}


def ceil_div(a, b):
    """Smallest integer not below a / b, for integers and integer arrays, without going through a float."""
    return -(-a // b)


def figure(value: float) -> str:
    """A figure as logs have it: whole numbers with separators, others with two decimals.

    >>> figure(1_048_576), figure(54.614)
    ('1,048,576', '54.61')
    """
    return count(value) if isinstance(value, int) else f"{value:,.2f}"


def round_end(steps: int) -> int:
    """Where an axis of steps ends: the next round number, a quarter of a power of ten apart.

    >>> round_end(1148), round_end(500), round_end(7)
    (1250, 500, 7)
    """
    quarter = max(1, 10 ** (len(str(steps)) - 1) // 4)
    return ceil_div(steps, quarter) * quarter


def whole_bytes(gib: float) -> int:
    """Bytes of a size written in GiB, rounded to the nearest byte; a number or an array.

    >>> whole_bytes(1.5)
    1610612736
    """
    return rounded(gib * GIB)


def gib(size_bytes: float, decimals: int = 1) -> str:
    """A memory size in GiB.

    >>> gib(85_000_000_000), gib(2**30, 2)
    ('79.2 GiB', '1.00 GiB')
    """
    return f"{size_bytes / GIB:,.{decimals}f} GiB"


def gib_or_less(size_bytes: float, decimals: int = 2) -> str:
    """Bytes in GiB, or in a smaller unit where these would show little.

    >>> gib_or_less(2**30), gib_or_less(3 * 2**20)
    ('1.00 GiB', '3 MiB')
    """
    return gib(size_bytes, decimals) if size_bytes >= GIB / 10 else binary(size_bytes)


def gb_per_s(bytes_per_s: float) -> str:
    """A bandwidth in decimal GB a second, as it is marketed.

    >>> gb_per_s(3_350_000_000_000)
    '3,350 GB/s'
    """
    return f"{bytes_per_s / 1e9:,.0f} GB/s"


def binary(size_bytes: float) -> str:
    """A size in the binary unit that suits it: three figures, whole numbers without decimals.

    >>> binary(131072), binary(2408000), binary(96)
    ('128 KiB', '2.3 MiB', '96 B')
    """
    for unit, name in ((GIB, "GiB"), (MIB, "MiB"), (KIB, "KiB")):
        if abs(size_bytes) >= unit:
            value = size_bytes / unit
            return f"{value:,.0f} {name}" if value == int(value) or value >= 100 else f"{value:,.1f} {name}"
    return f"{size_bytes:,.0f} B"


def percent(share: float) -> str:
    """A share in a sentence: two significant figures.

    >>> percent(0.6642), percent(0.0054), percent(1), percent(0.998)
    ('66%', '0.54%', '100%', '99.8%')
    """
    value = share * 100
    if value == 0 or value >= 100:
        return f"{value:.0f}%"
    if value >= 99:
        return "100%" if value > 99.95 else f"{value:.1f}%"
    if value >= 10:
        return f"{value:.0f}%"
    return f"{value:.2g}%" if value >= 0.001 else "under 0.001%"


def percent_exact(share: float) -> str:
    """A share in a metric: one decimal, two below 1%.

    >>> percent_exact(0.336), percent_exact(0.0054)
    ('33.6%', '0.54%')
    """
    value = share * 100
    return f"{value:.2f}%" if 0 < value < 1 else f"{value:.1f}%"


def count(number: float) -> str:
    """A count with thousands separators, floored: a sequence that does not fit whole does not count.

    >>> count(272784), count(372.9)
    ('272,784', '372')
    """
    return f"{int(number // 1):,}"


def mean(number: float) -> str:
    """A mean in whole units, rounded: nothing has to fit whole.

    >>> mean(1154.7)
    '1,155'
    """
    return f"{number:,.0f}"


def duration(seconds: float) -> str:
    """Seconds as a reader takes them: milliseconds below one, whole ones from ten of them on.

    >>> duration(0.0093), duration(0.0214), duration(0.9996), duration(4.49), duration(125)
    ('9.3 ms', '21 ms', '1,000 ms', '4.5 s', '125 s')
    """
    if seconds < 1:
        return f"{1000 * seconds:,.{0 if seconds >= 0.01 else 1}f} ms"
    return f"{seconds:,.{1 if seconds < 100 else 0}f} s"


def usd(amount: float) -> str:
    """An amount of money: cents from a dollar to ten thousand, whole dollars above, three figures below.

    >>> usd(0.99998), usd(0.0438), usd(0.98), usd(18.2967), usd(123456.7), usd(0.0), usd(0.00001)
    ('$1.00', '$0.0438', '$0.980', '$18.30', '$123,457', '$0.00', '$0.0000100')
    """
    if amount >= 10_000:
        return f"${amount:,.0f}"
    if round(amount, 3) >= 1 or amount < LEAST_USD:
        return f"${amount:,.2f}"
    return f"${amount:.{2 - math.floor(math.log10(amount))}f}"


def target(seconds: float) -> str:
    """A target as it was given, all its figures.

    >>> target(2.0), target(0.05), target(0.0125)
    ('2 s', '50 ms', '12.5 ms')
    """
    return f"{seconds:g} s" if seconds >= 1 else f"{1000 * seconds:g} ms"


def capitalised(words: str) -> str:
    """Words as a sentence begins, the rest as it is.

    >>> capitalised("a GPU hour"), capitalised("")
    ('A GPU hour', '')
    """
    return words[:1].upper() + words[1:]


def short_tokens(tokens: int) -> str:
    """A length as an axis writes it.

    >>> short_tokens(32768), short_tokens(10007), short_tokens(256)
    ('32k', '10,007', '256')
    """
    return f"{tokens // KIB:,}k" if tokens % KIB == 0 and tokens >= KIB else f"{tokens:,}"
