"""Pictures of every page and every state, in both themes and at each size: make screenshots, or

    PYTHONPATH=.:benchmarks python tests/screenshots.py FOLDER [WORD ...]

Each is written twice: the first screen, and the whole page (-full). With words, only pictures whose name has all of
them, such as `pool dark`.
"""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from browsing import ADDRESSES, browsing, go, opened, wait_until_drawn
from playwright.sync_api import Page
from serving import serving

from kvplan.dashboard.documents import TITLES

PLAN = "?preset=llama-70b-chat-4xh100"
NO_POOL, SMALL_POOL, REFUSED = "?model=llama-3.1-70b", "?model=llama-3.1-70b&tp=2&context=131072", "?tp=3"
BROKEN = "?tp=4&context=-5&colour=red&model=lama-3.1-8b"
LOG = Path(__file__).parents[1] / "docs/samples/vllm.log"
TALLEST = 14_000
"""Pixels of a picture; a browser draws none that is higher than 16,384."""
SIZES = {
    "desktop": {"width": 1440, "height": 900},
    "phone": {"width": 390, "height": 844},
    # What 200% zoom leaves of a window of 1440 x 900.
    "zoom": {"width": 720, "height": 450, "device_scale_factor": 2},
}
HEIGHTS = """[
    '[data-testid=stMain]', '[data-testid=stSidebar]:not([data-collapsed=true]) [data-testid=stSidebarContent]'
].map(part => document.querySelector(part)?.scrollHeight ?? 0)"""


class Scene(NamedTuple):
    """An address, and what is done there before the picture is taken."""

    address: str
    act: Callable[[Page], None] = wait_until_drawn
    rests: bool = True


def scenes() -> Iterator[tuple[str, Scene]]:
    """Every page as it opens, then what else can be seen."""
    for name, address in ADDRESSES.items():
        yield name, Scene(address + PLAN)
    for name, address in ADDRESSES.items():
        yield f"{name}-does-not-fit", Scene(address + NO_POOL)
    yield "ceiling-not-one", Scene("/" + SMALL_POOL)
    yield "ceiling-refused", Scene("/" + REFUSED)
    yield "ceiling-link-notes", Scene("/" + BROKEN)
    yield "ceiling-copy-link", Scene("/" + PLAN, _click(".st-key-copy_link button"))
    yield "ceiling-sidebar", Scene("/" + PLAN, _open_sidebar)
    yield "compare-three", Scene("/compare" + PLAN + "&b.tp=8&c.preset=llama-8b-chat-h100")
    yield "engine_log-pasted", Scene("/engine-log" + PLAN, _paste)
    yield "pool-long-run", Scene("/pool" + PLAN, _run_long, rests=False)
    yield "guide-answers", Scene("/guide" + PLAN, _click(".st-key-guide_show button"))
    yield from ((f"help-{name}", Scene(f"/help?doc={name}")) for name in TITLES)
    for name, query in UNUSUAL.items():
        yield from ((f"{page}-{name}", Scene(ADDRESSES[page] + query)) for page in ("ceiling", "batching", "paging"))


UNUSUAL = {
    "1k-tp-1": "?context=1024",
    "longest": "?model=llama-3.1-70b&tp=4&context=131072",
    "gemma": "?model=gemma-3-27b&tp=2&context=131072",
    "mla": "?model=deepseek-v3&gpu=h200&tp=8&context=32768",
    "mamba-hybrid": "?model=qwen3-next-80b-a3b&tp=4&context=65536",
}
"""Plans whose lines and labels lie elsewhere."""


def _click(selector: str) -> Callable[[Page], None]:
    def act(page: Page) -> None:
        wait_until_drawn(page)
        page.locator(selector).first.click()
        _rest(page)

    return act


def _open_sidebar(page: Page) -> None:
    wait_until_drawn(page)
    opener = page.locator("[data-testid=stExpandSidebarButton]")
    if opener.is_visible():
        opener.click()
    for group in page.locator("[data-testid=stSidebar] summary").all():
        group.click()


def _paste(page: Page) -> None:
    page.locator(".st-key-log_text textarea").fill(LOG.read_text())
    page.keyboard.press("Control+Enter")
    page.wait_for_selector("[data-testid=stMain] h3")


def _run_long(page: Page) -> None:
    wait_until_drawn(page)
    page.locator(".st-key-long_run").get_by_text("1,000,000", exact=True).click()
    page.wait_for_selector("[data-testid=stProgress]")
    page.locator("[data-testid=stProgress]").scroll_into_view_if_needed()


def _rest(page: Page) -> None:
    """Wait until nothing runs, and what was drawn has come to rest."""
    page.wait_for_selector("[data-testid=stApp][data-test-script-state=notRunning]")
    page.wait_for_function("!document.querySelector('[data-testid=stProgress]')", timeout=120_000)
    wait_until_drawn(page)
    page.wait_for_timeout(400)


@contextmanager
def _as_tall_as_its_content(page: Page) -> Iterator[None]:
    size = page.viewport_size
    page.set_viewport_size({**size, "height": min(TALLEST, max(size["height"], *page.evaluate(HEIGHTS)))})
    page.wait_for_timeout(300)
    yield
    page.set_viewport_size(size)


def take(folder: Path, words: list[str]) -> None:
    """Write every picture whose name has all of the words."""
    folder.mkdir(parents=True, exist_ok=True)
    views = [(f"{size}-{scheme}", size, scheme) for size in SIZES for scheme in ("light", "dark")]
    with serving() as running, browsing() as browser:
        for view, size, scheme in views:
            wanted = {f"{name}-{view}": scene for name, scene in scenes() if _has(f"{name}-{view}", words)}
            if not wanted:
                continue
            with opened(running.address, browser, scheme=scheme, **SIZES[size]) as page:
                # The browser remembers whether the sidebar was left open.
                page.add_init_script("localStorage.clear()")
                for name, scene in wanted.items():
                    _take_one(page, running.address, scene, folder / f"{name}.png")


def _has(name: str, words: list[str]) -> bool:
    return all(word in name for word in words)


def _take_one(page: Page, server: str, scene: Scene, path: Path) -> None:
    go(page, server + scene.address)
    scene.act(page)
    if scene.rests:
        _rest(page)
    page.screenshot(path=path)
    with _as_tall_as_its_content(page):
        page.screenshot(path=path.with_stem(f"{path.stem}-full"))
    print(path)


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    take(Path(sys.argv[1]), sys.argv[2:])
