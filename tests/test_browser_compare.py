"""Plans side by side in a real browser: the address that carries them, and the browser's Back."""

import pytest
from browsing import expect_tiles, go, open_menu, settle, slider
from playwright.sync_api import Page, expect

from kvplan import Plan
from kvplan.links import decode_comparison, encode_comparison

pytestmark = pytest.mark.browser
CHAT = Plan(model="llama-3.1-70b", tp=4, context=32768)
EIGHT = CHAT.model_copy(update={"tp": 8})
LONGER = CHAT.model_copy(update={"context": 65536})
TWO = "/compare" + encode_comparison([CHAT, EIGHT])


def plans_of(page: Page) -> list[Plan]:
    plans, notes = decode_comparison(page.url)
    assert notes == []
    return plans


def steps_to(page: Page, step, path: str) -> None:
    """To a page of the history in two steps at most."""
    for _ in range(2):
        if not page.url.partition("?")[0].endswith(path):
            step()
            settle(page)
    assert page.url.partition("?")[0].endswith(path)


def test_one_link_opens_every_plan_in_a_fresh_browser(open_page):
    four = [CHAT, EIGHT, LONGER, CHAT.model_copy(update={"kv_dtype": "fp8"})]
    with open_page("/compare" + encode_comparison(four)) as page:
        assert plans_of(page) == four
        expect_tiles(page, *four)
        expect(page.locator("[data-testid=stPlotlyChart] .main-svg").first).to_be_visible()
        assert page.locator("[data-testid=stPlotlyChart]").count() == 4


def test_the_address_keeps_the_other_plan_where_it_was_while_the_sidebar_moves(open_page):
    with open_page(TWO) as page:
        slider(page, "context").press("ArrowRight")
        settle(page)
        assert plans_of(page) == [LONGER, EIGHT]
        page.reload()
        page.wait_for_selector("[data-testid=stMetricValue]")
        settle(page)
        assert plans_of(page) == [LONGER, EIGHT]
        expect_tiles(page, LONGER, EIGHT)


def test_back_undoes_a_move_of_the_sidebar_for_both_plans(open_page):
    with open_page(TWO) as page:
        slider(page, "context").press("ArrowRight")
        settle(page)
        page.go_back()
        settle(page)
        assert plans_of(page) == [CHAT, EIGHT]
        expect_tiles(page, CHAT, EIGHT)


def test_plans_outlive_a_visit_to_another_page_and_back_leaves_for_it(open_page):
    with open_page(TWO) as page:
        page.get_by_role("link", name="Paging").click()
        settle(page)
        assert page.url.partition("?")[0].endswith("/paging")
        open_menu(page, "Decide", "Compare")
        settle(page)
        assert plans_of(page) == [CHAT, EIGHT]
        steps_to(page, page.go_back, "/paging")
        steps_to(page, page.go_forward, "/compare")
        assert plans_of(page) == [CHAT, EIGHT]
        expect_tiles(page, CHAT, EIGHT)


def test_adding_keeping_and_removing_reach_the_address(open_page, server):
    with open_page("/compare?model=llama-3.1-70b&tp=4&context=32768") as page:
        page.get_by_role("button", name="fp8 KV").click()
        settle(page)
        fp8 = CHAT.model_copy(update={"kv_dtype": "fp8"})
        assert plans_of(page) == [CHAT, fp8]
        page.get_by_role("button", name="Keep A as C").click()
        settle(page)
        assert plans_of(page) == [CHAT, fp8, CHAT]
        page.locator(".st-key-compare_B button").first.click()
        page.get_by_role("button", name="Remove").click()
        settle(page)
        assert plans_of(page) == [CHAT, CHAT]
        go(page, server + TWO)
        expect_tiles(page, CHAT, EIGHT)
