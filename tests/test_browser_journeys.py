"""From one end to the other in a real browser: a newcomer, an engineer with a log, and somebody with a phone."""

import json
from pathlib import Path

import pytest
from browsing import ADDRESSES, expect_answer, plan_of, settle, slider, wait_until_drawn
from playwright.sync_api import Page, expect

from kvplan import Plan, encode_link, evaluate, load_preset, verdict
from kvplan.units import short_tokens
from kvplan.verdict import plain

pytestmark = pytest.mark.browser
SAMPLES = Path(__file__).parents[1] / "docs/samples"
CHAT = load_preset("llama-70b-chat-4xh100")
PHONE = {"width": 390, "height": 844, "has_touch": True, "is_mobile": True}


def expect_verdict(page: Page, plan: Plan) -> None:
    """The page's sentence is that of the ceiling of this plan."""
    sentence = plain(verdict.ceiling(evaluate(plan)).sentence)
    expect(page.locator("[data-testid=stMain] h2")).to_have_text(sentence.replace("\u00a0", " "))


def expect_label(page: Page, plan: Plan, where: str) -> None:
    """The chart of the ceiling has the plan's dot where it belongs."""
    ceiling = evaluate(plan).capacity.batch_ceiling
    label = page.locator(".st-key-ceiling_chart .annotation-text", has_text=f"{ceiling:,} at {where}")
    expect(label).to_be_visible()


def open_menu(page: Page, section: str, name: str) -> None:
    page.get_by_role("button", name=section).click()
    page.get_by_role("menuitem", name=name).click()
    settle(page)


def test_a_newcomer_takes_a_ready_plan_reads_the_verdict_and_walks_through_the_guide(open_page):
    with open_page() as page:
        page.locator(".st-key-ready_plan input").click()
        page.get_by_role("option", name="70B chat on 4 × H100").click()
        settle(page)
        expect_verdict(page, CHAT)
        open_menu(page, "Learn", "Guide")
        expect(page.locator("[data-testid=stMain] h2")).to_have_text("Llama 3.1 70B on 4 × H100 SXM, in five minutes")
        page.get_by_role("button", name="Show me").click()
        page.wait_for_selector("[data-testid=stMetricValue]")
        expect(page.get_by_text("What next")).to_be_visible()
        page.locator("[data-testid=stMain]").get_by_role("link", name="Ceiling").click()
        settle(page)
        wait_until_drawn(page)
        assert plan_of(page) == CHAT
        expect_label(page, CHAT, "32k")


def test_an_engineer_brings_a_config_and_a_log_and_sees_the_ceiling_of_that_start(open_page):
    with open_page() as page:
        page.locator(".st-key-more_model summary").click()
        page.locator(".st-key-config button").first.click()
        config = json.loads((SAMPLES / "config.json").read_text())
        page.locator(".st-key-config_text textarea").fill(json.dumps(config))
        page.get_by_role("button", name="Use this model").click()
        page.wait_for_url("**spec=**")
        settle(page)
        brought = plan_of(page)
        expect_verdict(page, brought)

        open_menu(page, "Check", "Engine log")
        page.get_by_role("textbox", name="Start-up log").fill((SAMPLES / "vllm.log").read_text())
        page.keyboard.press("Control+Enter")
        expect(page.locator("[data-testid=stMain] h3")).to_contain_text("has a pool of 63.76 GiB a device")
        page.get_by_role("button", name="Make this my plan").click()
        page.wait_for_url("**kv_cache_memory_bytes=**")
        settle(page)
        measured = plan_of(page)
        assert (measured.spec, measured.tp, measured.context) == (None, 2, 8192)

        page.get_by_role("link", name="Ceiling").click()
        wait_until_drawn(page)
        settle(page)
        expect_answer(page, measured)
        expect_label(page, measured, "8k")


def test_a_shared_link_is_read_and_changed_on_a_phone(open_page):
    with open_page("/" + encode_link(CHAT), **PHONE) as page:
        wait_until_drawn(page)
        expect_verdict(page, CHAT)
        expect_label(page, CHAT, "32k")

        page.locator("[data-testid=stExpandSidebarButton]").tap()
        context = page.locator(".st-key-context")
        context.scroll_into_view_if_needed()
        tap_the_end_of(page, "context")
        settle(page)
        changed = plan_of(page)
        assert changed == CHAT.model_copy(update={"context": changed.context})
        assert changed.context > CHAT.context
        page.locator("[data-testid=stSidebarCollapseButton] button").tap()
        wait_until_drawn(page)
        expect_verdict(page, changed)
        expect_label(page, changed, short_tokens(changed.context))

        page.locator("[data-testid=stExpandSidebarButton]").tap()
        page.locator("[data-testid=stSidebar]").get_by_role("link", name="Pool").tap()
        page.wait_for_url(f"**{ADDRESSES['pool']}?**")
        settle(page)
        assert plan_of(page) == changed
        expect(page).to_have_title("Pool · kvplan")


def tap_the_end_of(page: Page, field: str) -> None:
    """Touch a slider's track near its right end."""
    box = page.locator(f".st-key-{field} [data-testid=stSlider]").bounding_box()
    thumb = slider(page, field).bounding_box()
    page.touchscreen.tap(box["x"] + 0.9 * box["width"], thumb["y"] + thumb["height"] / 2)
