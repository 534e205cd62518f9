"""Where a label goes so that it covers no curve and no other label: plain geometry in pixels, no plotting library.

Pixels count from the left and from the bottom of a plot.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import inf

import numpy as np

CHARACTER_WIDTH = 0.56
"""Width of an average character, as a share of the font size."""
LINE_HEIGHT = 1.3
DENSITY = 400
"""Points a curve is drawn with when it is tested against a box."""
REFERENCE_WEIGHT = 0.2


@dataclass(frozen=True)
class Side:
    """Where a label stands beside its point: -1, 0 or 1 to the right and upwards, `gap` pixels away, and `rise` up or
    down, which looks even if it is a little less at a corner."""

    right: int
    up: int
    gap: int = 10

    @property
    def rise(self) -> int:
        return self.gap if self.right == 0 else max(self.gap - 4, 1)


NEAR = [Side(-1, -1), Side(1, 1), Side(-1, 1), Side(1, -1), Side(1, 0), Side(-1, 0), Side(0, 1), Side(0, -1)]
SIDES = [*NEAR, *(Side(side.right, side.up, 26) for side in NEAR), *(Side(side.right, side.up, 44) for side in NEAR)]


@dataclass(frozen=True)
class Box:
    """A rectangle in pixels, by its lower left corner."""

    left: float
    bottom: float
    width: float
    height: float

    def overlaps(self, other: Box) -> bool:
        return (
            abs(self.left + self.width / 2 - other.left - other.width / 2) < (self.width + other.width) / 2
            and abs(self.bottom + self.height / 2 - other.bottom - other.height / 2) < (self.height + other.height) / 2
        )


@dataclass
class Canvas:
    """A plot of nominal size in pixels, the curves drawn in it, and the labels placed so far.

    `x_range` and `y_range` are the ends of the axes, log10 values on a log axis.
    """

    width: float
    height: float
    x_range: tuple[float, float]
    y_range: tuple[float, float]
    curves: list[np.ndarray] = field(default_factory=list)
    references: list[np.ndarray] = field(default_factory=list)
    taken: list[Box] = field(default_factory=list)

    def pixels(self, x, y) -> np.ndarray:
        """Axis values to pixels, an array of shape (n, 2)."""
        (x0, x1), (y0, y1) = self.x_range, self.y_range
        across = (np.atleast_1d(x).astype(float) - x0) / (x1 - x0) * self.width
        up = (np.atleast_1d(y).astype(float) - y0) / (y1 - y0) * self.height
        return np.column_stack([across, up])

    def values(self, pixel: Sequence[float]) -> tuple[float, float]:
        """A pixel back to axis values."""
        (x0, x1), (y0, y1) = self.x_range, self.y_range
        return x0 + pixel[0] / self.width * (x1 - x0), y0 + pixel[1] / self.height * (y1 - y0)

    def add_curve(self, x, y, reference: bool = False) -> np.ndarray:
        """Draw a polyline that labels should not cover, a mere reference line the least; returns its pixels."""
        points = self.pixels(x, y)
        steps = np.linspace(0, len(points) - 1, DENSITY)
        dense = np.column_stack([np.interp(steps, np.arange(len(points)), points[:, axis]) for axis in (0, 1)])
        (self.references if reference else self.curves).append(dense)
        return points

    def take(self, point: np.ndarray, side: Side, text: str, font_size: float) -> None:
        """Note a label that has its place already."""
        self.taken.append(_box(point, side, text, font_size))

    def place(self, points: Sequence[np.ndarray], text: str, font_size: float) -> tuple[np.ndarray, Side]:
        """The first of the points and sides at which the text is clear, else the least covered; it is then taken."""
        point, side = self._clearest([(point, side) for side in SIDES for point in points], text, font_size)
        self.take(point, side, text, font_size)
        return point, side

    def place_along(self, height: float, text: str, font_size: float) -> tuple[np.ndarray, Side]:
        """The same for a label on a horizontal line: as far right as it is clear, above the line or below it."""
        rights = np.arange(self.width - 2, len(text) * font_size * CHARACTER_WIDTH, -12.0)
        spots = [(np.array([right, height]), Side(-1, up, 2)) for right in rights for up in (1, -1)]
        point, side = self._clearest(spots, text, font_size)
        self.take(point, side, text, font_size)
        return point, side

    def _clearest(self, spots: list[tuple[np.ndarray, Side]], text: str, font_size: float) -> tuple[np.ndarray, Side]:
        """The first of the spots that cost least, the gap counted along; they come by their gaps, so that none behind a
        clear one is looked at."""
        found, least = spots[0], inf
        for spot in spots:
            gap = spot[1].gap
            if gap >= least:
                break
            cost = self._cost(_box(*spot, text, font_size)) + gap
            if cost < least:
                found, least = spot, cost
        return found

    def _cost(self, box: Box) -> float:
        """How much a box hides: points of curves, other labels, and what sticks out of the plot."""
        covered = sum(_points_inside(curve, box) for curve in self.curves)
        covered += REFERENCE_WEIGHT * sum(_points_inside(curve, box) for curve in self.references)
        hidden = sum(box.overlaps(other) for other in self.taken)
        outside = max(0.0, -box.left, box.left + box.width - self.width)
        outside += max(0.0, -box.bottom, box.bottom + box.height - self.height)
        return covered + DENSITY * (hidden + outside)


def spread(heights: Sequence[float], spacing: float, lowest: float, highest: float) -> list[float]:
    """Heights moved as little as needed so that neighbours are at least `spacing` apart, within the limits.

    >>> spread([10, 12, 80], 17, 0, 100)
    [2.5, 19.5, 80.0]
    """
    order = sorted(range(len(heights)), key=lambda index: heights[index])
    clusters: list[tuple[float, int]] = []
    for index in order:
        centre, size = float(min(max(heights[index], lowest), highest)), 1
        while clusters and centre - (size - 1) * spacing / 2 < clusters[-1][0] + (clusters[-1][1] + 1) * spacing / 2:
            below, below_size = clusters.pop()
            centre = (centre * size + below * below_size) / (size + below_size)
            size += below_size
        reach = (size - 1) * spacing / 2
        centre = min(max(centre, lowest + reach), max(highest - reach, lowest + reach))
        clusters.append((centre, size))
    placed = [centre + (step - (size - 1) / 2) * spacing for centre, size in clusters for step in range(size)]
    result = [0.0] * len(heights)
    for index, height in zip(order, placed, strict=True):
        result[index] = height
    return result


def _box(point: np.ndarray, side: Side, text: str, font_size: float) -> Box:
    width, height = len(text) * font_size * CHARACTER_WIDTH, font_size * LINE_HEIGHT
    left = point[0] + {1: side.gap, -1: -side.gap - width, 0: -width / 2}[side.right]
    bottom = point[1] + {1: side.rise, -1: -side.rise - height, 0: -height / 2}[side.up]
    return Box(left, bottom, width, height)


def _points_inside(curve: np.ndarray, box: Box) -> int:
    x, y = curve.T
    across = (x >= box.left - 2) & (x <= box.left + box.width + 2)
    return int((across & (y >= box.bottom - 2) & (y <= box.bottom + box.height + 2)).sum())
