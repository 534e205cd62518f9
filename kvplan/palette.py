"""The colours, as data: one concept, one colour, on every page and in both themes.

Text colours stand at least 4.5:1 on their page. Colours that meet on a page stay apart for colour-blind readers, and a
second cue (width, dash, filled or hollow, the name at the line) always goes with them.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Palette:
    """Colours of one theme. `pool` is what is booked, `held` what works, `wasted` what idles, `waiting` its tint for
    areas, `limit` what binds, `ink` this plan, and `second`, `third`, `fourth` those it is compared with."""

    pool: str
    held: str
    wasted: str
    waiting: str
    static: str
    limit: str
    weights: str
    overhead: str
    overhead_text: str
    reference: str
    muted: str
    ink: str
    second: str
    third: str
    fourth: str
    page: str
    border: str


LIGHT = Palette(
    pool="#0A4C9A",
    held="#00805E",
    wasted="#C85200",
    waiting="#F0AC80",
    static="#7A2FD0",
    limit="#74104C",
    weights="#8390A0",
    overhead="#A78F5C",
    overhead_text="#7A6534",
    reference="#5B6675",
    muted="#566172",
    ink="#0F1822",
    second="#175B5E",
    third="#8C6A1E",
    fourth="#CF2FA0",
    page="#FFFFFF",
    border="#DCE1E8",
)
DARK = Palette(
    pool="#7DB8FF",
    held="#34C398",
    wasted="#FF8B4A",
    waiting="#8A4A26",
    static="#A970FA",
    limit="#FA4468",
    weights="#657182",
    overhead="#9C8A5F",
    overhead_text="#CDBA8C",
    reference="#A0ABB9",
    muted="#A3AEBC",
    ink="#E6EBF1",
    second="#1FB6E0",
    third="#D99A2B",
    fourth="#F23D85",
    page="#10151B",
    border="#323C48",
)

# Fills are the same in both themes, so that they survive a change of theme.
POOL_FILL = "rgba(60,130,215,.16)"
POOL_EDGE = "rgba(60,130,215,.6)"
BAND_FILL = "rgba(122,47,208,.15)"
IDLE_FILL = "rgba(225,115,45,.12)"
HELD_FILL = "rgba(20,155,115,.22)"
FEASIBLE_FILL = "rgba(20,155,115,.11)"
OUTSIDE_FILL = "rgba(128,140,155,.11)"
GRID = "rgba(128,140,155,.22)"
