"""How it looks: colours that can be read, and told apart by colour-blind readers, and units on all that is drawn."""

import re
from itertools import combinations, product

import numpy as np
import pytest
from test_cli import SMALL_FLEET

from kvplan import Plan, evaluate
from kvplan.charts import CHARTS, draw
from kvplan.palette import DARK, LIGHT
from kvplan.shades import contrast

PALETTES = {"light": LIGHT, "dark": DARK}
SMALL = Plan(**SMALL_FLEET, arrival_rate=6.0, context=2048)
WORDS = ("ink", "muted", "reference", "pool", "held", "wasted", "static", "limit", "overhead_text")
CONCEPTS, BESIDE = ("pool", "held", "wasted", "static", "limit"), ("weights", "overhead", "reference")
APART, APART_FROM_GREY = 20, 15
NEARER = {("dark", "tritan", "pool", "held"): 14, ("dark", "deutan", "limit", "overhead"): 5}
"""Pairs that are nearer, and how near: the first differ in dash or width too, the others meet as a line and an area."""
SIGHTS = {
    "protan": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    "deutan": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]],
    "tritan": [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]],
}
"""Linear RGB as seen without one kind of cone. Source: Machado, Oliveira and Fernandes 2009, severity 1."""
TO_XYZ = [[0.4124564, 0.3575761, 0.1804375], [0.2126729, 0.7151522, 0.0721750], [0.0193339, 0.1191920, 0.9503041]]
WHITE = (0.95047, 1.0, 1.08883)
UNIT = r"tokens(/s)?|sequences|[KMG]iB|ms|share|used|slots?|steps?|requests|USD|dollars|FLOP(/s)?|pool"
TICK_UNIT = re.compile(r"%$| m?s$")
AMOUNT = re.compile(
    r"\d(%|×)|\d (sequences|tokens(/s)?|entries|blocks|requests|slots|of [\d,]+ free slots|[KMG]iB|m?s|[GTP]?FLOP)"
    r"|\$[\d,.]+ (a million tokens|an hour)|\bstep \d"
)


def linear(colour: str) -> np.ndarray:
    """Source: WCAG 2.2, relative luminance."""
    values = np.array([int(colour[start : start + 2], 16) for start in (1, 3, 5)]) / 255
    return np.where(values <= 0.04045, values / 12.92, ((values + 0.055) / 1.055) ** 2.4)


def lab(rgb: np.ndarray) -> np.ndarray:
    """Source: CIE 1976 L*a*b*, of sRGB with its white D65."""
    ratio = np.array(TO_XYZ) @ rgb / np.array(WHITE)
    x, y, z = np.where(ratio > (6 / 29) ** 3, np.cbrt(ratio), ratio / (3 * (6 / 29) ** 2) + 4 / 29)
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


def difference(sight: str, one: str, other: str) -> float:
    """CIE76 of two colours as these eyes see them."""
    seen = [lab(np.clip(np.array(SIGHTS[sight]) @ linear(colour), 0, 1)) for colour in (one, other)]
    return float(np.linalg.norm(seen[0] - seen[1]))


def words_of(hover) -> list[str]:
    """What hovering says below its first line, which is the name, for every point that says something."""
    texts = [hover] if isinstance(hover, str) else list(hover if hover is not None else [])
    return [re.sub("<[^>]*>", " ", text.partition("<br>")[2]) for text in texts if text]


@pytest.mark.parametrize("name", WORDS)
@pytest.mark.parametrize("theme", PALETTES)
def test_words_can_be_read_on_their_page(theme, name):
    palette = PALETTES[theme]
    assert contrast(getattr(palette, name), palette.page) >= 4.5


@pytest.mark.parametrize("name", ["weights", "overhead"])
@pytest.mark.parametrize("theme", PALETTES)
def test_areas_are_seen_on_their_page(theme, name):
    palette = PALETTES[theme]
    assert contrast(getattr(palette, name), palette.page) >= 3


@pytest.mark.parametrize("sight", SIGHTS)
@pytest.mark.parametrize("theme", PALETTES)
def test_colours_that_meet_are_told_apart_by_colour_blind_readers(theme, sight):
    pairs = [(pair, APART) for pair in combinations(CONCEPTS, 2)]
    pairs += [(pair, APART_FROM_GREY) for pair in product(CONCEPTS, BESIDE)]
    colours = PALETTES[theme]
    for (one, other), least in pairs:
        apart = difference(sight, getattr(colours, one), getattr(colours, other))
        assert apart >= NEARER.get((theme, sight, one, other), least), (one, other)


def test_the_simulation_is_that_of_the_paper_and_the_difference_that_of_the_standard():
    for matrix in SIGHTS.values():
        assert np.sum(matrix, axis=1) == pytest.approx(1, abs=1e-5)  # greys are seen as they are
    assert lab(linear("#FFFFFF")) == pytest.approx([100, 0, 0], abs=0.01)
    assert lab(linear("#FF0000")) == pytest.approx([53.24, 80.09, 67.20], abs=0.01)


@pytest.mark.parametrize("name", CHARTS)
def test_every_axis_names_its_unit_or_its_rows(name):
    layout = draw(name, evaluate(SMALL), LIGHT).layout
    for axis in (layout.xaxis, layout.yaxis):
        if axis.visible is False:
            continue
        ticks = [re.sub("<[^>]*>", "", text) for text in axis.ticktext or ()]
        rows = bool(ticks) and not any(re.fullmatch(r"[\d,.k$]+", text) for text in ticks)
        titled = bool(re.search(rf"\b({UNIT})\b", axis.title.text or "", re.I))
        assert titled or (axis.title.text and any(map(TICK_UNIT.search, ticks))) or rows, (axis.title.text, ticks)


@pytest.mark.parametrize("name", CHARTS)
def test_hovering_names_the_unit(name):
    for trace in draw(name, evaluate(SMALL), LIGHT).data:
        for words in words_of(trace.hovertext):
            assert AMOUNT.search(words), words
