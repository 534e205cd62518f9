"""The pages in a real browser: for everyone, on every page, at every size, while they load and while sliders move."""

import pytest
from browsing import ADDRESSES, go, opened, settle, slider, wait_until_drawn
from playwright.sync_api import Page, expect
from screenshots import SIZES, scenes

import app
from kvplan.charts import CHARTS

pytestmark = pytest.mark.browser
GEMMA = "?model=gemma-3-27b&tp=2&context=32768"
STATES = {name: scene for name, scene in scenes() if name not in ADDRESSES}
SEEN_BY_AXE = (
    "ceiling-does-not-fit",
    "sweep-does-not-fit",
    "ceiling-refused",
    "ceiling-link-notes",
    "ceiling-copy-link",
    "ceiling-sidebar",
    "engine_log-pasted",
    "help-accuracy",
    "help-why-the-engine-says-something-else",
)
WITH_CHARTS = [
    name
    for listed in app.PAGES.values()
    for name, title, _ in listed
    if title in {"Sweep", *(chart.page for chart in CHARTS.values())}
]
MOST_TABS = 120
HEADINGS = (
    "[data-testid=stMain] [data-testid=stMarkdownContainer]:not(h2 *, [data-testid=stCaptionContainer]) > p > strong"
)
STANDING = f"{HEADINGS}, [data-testid=stMain] :is(h2, [data-testid=stMetric], [data-testid=stPlotlyChart])"
BOXES = """elements => elements.map(element => {
    const box = element.getBoundingClientRect();
    return [element.tagName, Math.round(box.x), Math.round(box.y)];
})"""


def serious_violations(page: Page) -> dict[str, list]:
    """What axe-core calls serious or critical, but for selects that are switched off: WCAG 1.4.3 leaves those out, and
    so does axe-core wherever a label is tied to its control."""
    from axe_playwright_python.sync_playwright import Axe

    found = Axe().run(page, {"exclude": [[".stSelectbox:has(input:disabled)"]]}).response["violations"]
    return {
        item["id"]: [node["target"] for node in item["nodes"]][:5]
        for item in found
        if item["impact"] in ("serious", "critical")
    }


def places(page: Page) -> list:
    """Where the verdict, the numbers, the headings and the charts stand."""
    return page.locator(STANDING).evaluate_all(BOXES)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("name", ADDRESSES)
def test_no_page_has_a_serious_accessibility_violation(open_page, name, scheme):
    with open_page(ADDRESSES[name] + GEMMA, scheme=scheme) as page:
        wait_until_drawn(page)
        page.wait_for_selector("[data-testid=stProgress]", state="detached", timeout=60_000)
        settle(page)
        assert serious_violations(page) == {}


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("name", SEEN_BY_AXE)
def test_no_state_has_a_serious_accessibility_violation(open_page, name, scheme):
    scene = STATES[name]
    with open_page(scene.address, scheme=scheme) as page:
        scene.act(page)
        settle(page)
        wait_until_drawn(page)
        assert serious_violations(page) == {}


@pytest.mark.parametrize("size", ["phone", "zoom"])
@pytest.mark.parametrize("name", ADDRESSES)
def test_no_page_scrolls_sideways(open_page, name, size):
    with open_page(ADDRESSES[name], **SIZES[size]) as page:
        wait_until_drawn(page)
        width = page.evaluate("document.querySelector('[data-testid=stMain]').scrollWidth")
        assert width <= SIZES[size]["width"]


@pytest.mark.parametrize("name", WITH_CHARTS)
def test_nothing_moves_while_the_context_is_dragged(open_page, name):
    with open_page(f"{ADDRESSES[name]}?context=4096") as page:
        wait_until_drawn(page)
        if name == "fleet":
            page.wait_for_selector("[data-testid=stProgress]", state="detached", timeout=60_000)
        before = places(page)
        slider(page, "context").press("ArrowRight")
        settle(page)
        wait_until_drawn(page)
        assert places(page) == before


@pytest.mark.parametrize("name", ["ceiling", "pool", "throughput"])
def test_headings_stand_where_they_stay_before_the_charts_are_there(server, browser, name):
    with opened(server, browser, ADDRESSES[name]) as page:
        wait_until_drawn(page)
        held = []
        page.route("**/PlotlyChart*.js", lambda route: held.append(route))
        go(page, server + ADDRESSES[name])
        page.wait_for_selector("[data-testid=stMetricValue]")
        charts = page.locator("[data-testid=stMain] [data-testid=stSkeleton]")
        expect(charts).not_to_have_count(0)
        headings = page.locator(HEADINGS)
        before = headings.evaluate_all(BOXES)
        assert held
        for route in held:
            route.continue_()
        wait_until_drawn(page)
        assert headings.evaluate_all(BOXES) == before


def tab_to(page: Page, selector: str) -> None:
    """Press Tab until the focus is on, or in, what the selector finds."""
    for _ in range(MOST_TABS):
        page.keyboard.press("Tab")
        if page.evaluate("selector => Boolean(document.activeElement.closest(selector))", selector):
            return
    raise AssertionError(f"Tab does not reach {selector}")


def expect_a_ring(page: Page, selector: str) -> None:
    """What has the focus looks otherwise than without it."""
    box = page.locator(selector).first.bounding_box()
    around = {"x": box["x"] - 6, "y": box["y"] - 6, "width": box["width"] + 12, "height": box["height"] + 12}
    page.wait_for_timeout(300)
    focused = page.screenshot(clip=around, animations="disabled")
    element = page.evaluate_handle("document.activeElement")
    element.evaluate("element => element.blur()")
    page.wait_for_timeout(300)
    assert page.screenshot(clip=around, animations="disabled") != focused, selector
    element.evaluate("element => element.focus({focusVisible: true})")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_keyboard_alone_moves_the_plan_copies_its_link_and_changes_the_page(open_page, scheme):
    with open_page(scheme=scheme) as page:
        wait_until_drawn(page)
        tab_to(page, ".st-key-ready_plan")
        expect_a_ring(page, ".st-key-ready_plan")
        page.keyboard.press("ArrowDown")
        page.keyboard.press("ArrowDown")
        page.keyboard.press("Enter")
        settle(page)
        assert page.url.partition("?")[2]
        tab_to(page, ".st-key-context input")
        expect_a_ring(page, ".st-key-context")
        before = slider(page, "context").input_value()
        page.keyboard.press("ArrowRight")
        settle(page)
        assert slider(page, "context").input_value() != before

        tab_to(page, ".st-key-copy_link")
        expect_a_ring(page, ".st-key-copy_link button")
        page.keyboard.press("Enter")
        # What it holds comes with a run of its own, which would open it again.
        expect(page.locator("[data-testid=stPopoverBody] [data-testid=stCode]")).to_be_visible()
        settle(page)
        page.keyboard.press("Escape")
        expect(page.locator("[data-testid=stPopoverBody]")).to_be_hidden()

        page.reload()
        wait_until_drawn(page)
        tab_to(page, "[data-testid=stTopNavSection]")
        expect_a_ring(page, "[data-testid=stTopNavSection]")
        page.keyboard.press("Enter")
        page.keyboard.press("ArrowDown")
        page.keyboard.press("Enter")
        settle(page)
        expect(page.get_by_role("button", name="Decide")).to_contain_text("Fleet")
        expect(page).to_have_title("Fleet · kvplan")
