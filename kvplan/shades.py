"""Shades of one colour for more and less, and the text colour that is readable on each."""

from __future__ import annotations

FAINTEST = 0.12
"""How much of the colour the least of a scale has, so that it is told from the page."""
BLACK, WHITE = "#000000", "#FFFFFF"


def shade(page: str, colour: str, share: float) -> str:
    """From just above the page's colour at 0 to the whole colour at 1, all as #RRGGBB.

    >>> shade("#FFFFFF", "#0A4C9A", 0), shade("#FFFFFF", "#0A4C9A", 1)
    ('#E2EAF3', '#0A4C9A')
    """
    part = FAINTEST + (1 - FAINTEST) * share
    mixed = [one + (other - one) * part for one, other in zip(_channels(page), _channels(colour), strict=True)]
    return "#" + "".join(f"{round(channel):02X}" for channel in mixed)


def readable_on(colour: str) -> str:
    """Black or white, whichever contrasts more: 4.5:1 at least on any colour.

    >>> readable_on("#E2EAF3"), readable_on("#0A4C9A")
    ('#000000', '#FFFFFF')
    """
    return max(BLACK, WHITE, key=lambda text: contrast(text, colour))


def contrast(one: str, other: str) -> float:
    """How far two colours are apart in lightness, from 1 to 21. Source: WCAG 2.2, contrast ratio."""
    darker, lighter = sorted(_luminance(colour) for colour in (one, other))
    return (lighter + 0.05) / (darker + 0.05)


def _luminance(colour: str) -> float:
    """Source: WCAG 2.2, relative luminance."""
    linear = [
        channel / 12.92 if channel <= 0.04045 else ((channel + 0.055) / 1.055) ** 2.4
        for channel in (value / 255 for value in _channels(colour))
    ]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def _channels(colour: str) -> list[int]:
    """Red, green and blue of #RRGGBB, from 0 to 255."""
    return [int(colour[start : start + 2], 16) for start in (1, 3, 5)]
