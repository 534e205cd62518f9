"""How long the browser takes from the release of a dragged slider to the repainted chart, beside an app of one chart.

    python benchmarks/drag.py [--moves N] [--own] [PAGE ...]

Serves the dashboard and `bare.py`, opens both in headless Chromium, and drags the context of one and the other in turns
with the mouse; with `--own` the other is `one_chart.py`, which draws the page's own chart and nothing else (the chart
of Fleet after a search, which the page leaves to a worker). The clock runs in the browser, from the release of the
button to the second frame in which the page's main chart shows lines and words that it did not show before. `idle` is
when the whole page has run. Needs a Chromium.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from playwright.sync_api import Browser, Page, sync_playwright
from serving import serving
from timing import Row, table

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-renderer-backgrounding"]
CHARTS = {
    "ceiling": ("ceiling_chart", "ceiling"),
    "batching": ("utilisation_chart", "batching"),
    "paging": ("waste_chart", "waste"),
    "throughput": ("rates", "throughput"),
    "pool": ("pool_reserve", "pool-reserve"),
    "fleet": ("frontier", "fleet"),
    "levers": ("levers_ceiling", "levers-ceiling"),
}
"""The main chart of each page, by its key there and its name in `kvplan.charts`. The map of Sweep has the context on an
axis and stays as it is."""
BARE, ONE_CHART = "benchmarks/bare.py", "benchmarks/one_chart.py"
CONTEXTS = [2**power for power in range(8, 21)]
"""Places of the context slider, in tokens."""
PLACES = (4096, 16384)
"""Those between which it is dragged; a page opens with 8192."""
WARM_UP, MOVES, REST_MS, LONGEST_MS = 4, 20, 150, 20_000

WATCH = """chart => {
    const parts = `.st-key-${chart} svg :is(text, path.js-line, path.point, .point path)`
    const show = () => [...document.querySelectorAll(parts)]
        .map(part => part.textContent + part.getAttribute('d')).join()
    const before = show()
    window.drag = new Promise((done, fail) => addEventListener('pointerup', event => {
        setTimeout(() => fail(Error('the chart did not change')), LONGEST_MS)
        let seen = '', painted = 0
        const look = () => {
            const now = show()
            if (!painted && now && now !== before && now === seen) painted = performance.now() - event.timeStamp
            seen = now
            const idle = document.querySelector('[data-test-script-state=notRunning]')
            painted && idle ? done([painted, performance.now() - event.timeStamp]) : requestAnimationFrame(look)
        }
        requestAnimationFrame(look)
    }, {once: true, capture: true}))
}""".replace("LONGEST_MS", str(LONGEST_MS))


class Drag(NamedTuple):
    """Milliseconds from the release to the chart's new lines and words, and to the end of the run."""

    painted: float
    idle: float


def opened(browser: Browser, address: str, chart: str) -> Page:
    page = browser.new_page(viewport={"width": 1440, "height": 900})
    page.goto(address)
    page.wait_for_selector(f".st-key-{chart} .main-svg", timeout=60_000)
    page.wait_for_selector("[data-test-script-state=notRunning]")
    return page


def drag(page: Page, chart: str, place: int) -> Drag:
    """Drag the context slider to a place with the mouse, and wait for the chart and for the end of the run."""
    slider = page.locator(".st-key-context")
    slider.scroll_into_view_if_needed()
    knob = slider.locator("[data-rac]:has(> div > input)").bounding_box()
    track = slider.get_by_test_id("stSliderTickBar").bounding_box()
    height = knob["y"] + knob["height"] / 2
    page.mouse.move(knob["x"] + knob["width"] / 2, height)
    page.mouse.down()
    page.mouse.move(track["x"] + track["width"] * CONTEXTS.index(place) / (len(CONTEXTS) - 1), height, steps=5)
    page.evaluate(WATCH, chart)
    page.mouse.up()
    return Drag(*page.evaluate("window.drag"))


def in_turns(ours: Page, chart: str, theirs: Page, moves: int) -> tuple[list[Drag], list[Drag]]:
    """Drags of one page and the other, one after another, so that both see the same machine."""
    pairs = []
    for move in range(WARM_UP + moves):
        place = PLACES[move % len(PLACES)]
        pairs.append((drag(ours, chart, place), drag(theirs, "chart", place)))
        ours.wait_for_timeout(REST_MS)
    return tuple(map(list, zip(*pairs[WARM_UP:], strict=True)))


def rows(pages: Iterable[str] = tuple(CHARTS), moves: int = MOVES, own: bool = False) -> Iterator[Row]:
    """Milliseconds: the median and the 95th percentile of the drags, and the median to the end of the run. `own`:
    beside the page's own chart."""
    beside = "a slider and this chart" if own else "a slider and a chart"
    with serving() as ours, serving(app=ONE_CHART if own else BARE) as theirs, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        for name in pages:
            key, chart = CHARTS[name]
            page = opened(browser, f"{ours.address}/{'' if name == 'ceiling' else name}", key)
            other = opened(browser, f"{theirs.address}/?chart={chart}", "chart")
            found = in_turns(page, key, other, moves)
            page.close()
            other.close()
            for what, figure in FIGURES.items():
                mine, others = map(figure, found)
                yield Row(f"drag: {name}, {what}", mine, beside, others, "ms")
        browser.close()


def _percentile_95(found: list[Drag]) -> float:
    return statistics.quantiles([each.painted for each in found], n=20)[-1]


FIGURES = {
    "median": lambda found: statistics.median(each.painted for each in found),
    "95%": _percentile_95,
    "idle": lambda found: statistics.median(each.idle for each in found),
}
"""What is said of the drags of a page."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("pages", nargs="*", choices=[*CHARTS, []], help="pages; all of them without any")
    parser.add_argument("--moves", type=int, default=MOVES, help="drags of each page")
    parser.add_argument("--own", action="store_true", help="beside an app of the page's own chart")
    options = parser.parse_args()
    print(table(rows(options.pages or CHARTS, options.moves, options.own)))


if __name__ == "__main__":
    main()
