"""A browser of its own for the dashboard: the pages, and the moves that its tests share."""

import os
import shutil
from contextlib import contextmanager

import pytest

from kvplan import Plan, decode_link, evaluate

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
if CHROMIUM is None and not os.environ.get("KVPLAN_REQUIRE_BROWSER"):
    pytest.skip("browser tests: no Chromium found on this machine", allow_module_level=True)

from playwright.sync_api import Page, expect, sync_playwright  # noqa: E402

import app  # noqa: E402

FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
# A machine that does other work as well takes longer than the usual 5 s.
expect.set_options(timeout=30_000)
ADDRESSES = {
    name: "/" if name == app.FIRST else f"/{app.address(name)}" for listed in app.PAGES.values() for name, *_ in listed
}
"""Every page's address by its name, in the order of the navigation."""


@contextmanager
def browsing():
    """A Chromium of this machine."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield browser
        browser.close()


@contextmanager
def opened(
    server: str, browser, path: str = "/", width: int = 1440, height: int = 900, scheme: str = "light", **options
):
    """An address in a fresh browser; at the end nothing may have failed, and no other host been asked. `options` are
    those of Playwright's contexts."""
    context = browser.new_context(viewport={"width": width, "height": height}, color_scheme=scheme, **options)
    page = context.new_page()
    foreign, broken = [], []
    page.on("request", lambda request: _is_foreign(request.url, server) and foreign.append(request.url))
    page.on("pageerror", lambda error: broken.append(str(error)))
    try:
        go(page, server + path)
        yield page
        assert page.locator("[data-testid=stException]").count() == 0
        assert not foreign
        assert not broken
    finally:
        context.close()


def go(page: Page, url: str) -> None:
    page.goto(url)
    page.wait_for_selector("[data-testid=stMain] h2", timeout=60_000)
    settle(page)


def wait_until_drawn(page: Page) -> None:
    """Wait until the browser has the code of every control, and every chart of the page is drawn."""
    page.wait_for_function(
        "document.querySelector('[data-testid=stSkeleton]') === null &&"
        "[...document.querySelectorAll('[data-testid=stPlotlyChart]')].every(chart => chart.querySelector('.main-svg'))"
    )


def settle(page: Page) -> None:
    """Wait until the script has run, and the browser has written the address."""
    page.wait_for_timeout(250)
    page.wait_for_selector("[data-testid=stApp][data-test-script-state=notRunning]")
    page.wait_for_timeout(250)


def slider(page: Page, field: str):
    return page.locator(f".st-key-{field} input[type=range]")


def choose(page: Page, field: str, text: str) -> None:
    page.locator(f".st-key-{field} input").click()
    page.keyboard.type(text)
    page.keyboard.press("Enter")
    settle(page)


def plan_of(page: Page) -> Plan:
    plan, notes = decode_link(page.url)
    assert notes == []
    return plan


def expect_answer(page: Page, plan: Plan) -> None:
    """The page shows the ceiling of that plan."""
    ceiling = f"{evaluate(plan).capacity.batch_ceiling:,}"
    expect(page.locator("[data-testid=stMetricValue]").first).to_have_text(ceiling)


def expect_tiles(page: Page, *plans: Plan) -> None:
    """The page shows the ceilings of these plans side by side."""
    ceilings = [f"{evaluate(plan).capacity.batch_ceiling:,}" for plan in plans]
    expect(page.locator("[data-testid=stMetricValue]")).to_have_text(ceilings)


def open_menu(page: Page, section: str, name: str) -> None:
    """Open a page by a menu of the navigation."""
    page.get_by_role("button", name=section).click()
    page.get_by_role("menuitem", name=name).click()
    settle(page)


def _is_foreign(url: str, server: str) -> bool:
    return url.startswith(("http", "ws")) and not url.replace("ws:", "http:").startswith(server)
