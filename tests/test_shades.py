"""Shades of a colour: more of it for more, and text that can be read on each."""

import numpy as np
import pytest

from kvplan.palette import DARK, LIGHT
from kvplan.shades import contrast, readable_on, shade

ends = pytest.mark.parametrize(
    ("page", "colour"),
    [(palette.page, colour) for palette in (LIGHT, DARK) for colour in (palette.pool, palette.held)],
)


@ends
def test_text_is_readable_on_every_shade(page, colour):
    for share in np.linspace(0, 1, 201):
        fill = shade(page, colour, share)
        assert contrast(readable_on(fill), fill) >= 4.5


@ends
def test_more_is_further_from_the_page_and_the_least_is_told_from_it(page, colour):
    apart = [contrast(page, shade(page, colour, share)) for share in np.linspace(0, 1, 21)]
    assert apart == sorted(apart)
    assert apart[0] > 1.05
    assert shade(page, colour, 1) == colour


def test_contrast_is_that_of_the_guidelines():
    assert contrast("#000000", "#FFFFFF") == contrast("#FFFFFF", "#000000") == pytest.approx(21)
    assert contrast("#777777", "#FFFFFF") == pytest.approx(4.48, abs=0.005)  # WCAG: the grey that just fails
