"""What leaves the dashboard and comes back, and undo, in a browser."""

from pathlib import Path

import pytest
from browsing import expect, expect_answer, plan_of, settle, slider
from test_browser import SHARED

from kvplan import Plan, decode_link, encode_link, evaluate, metrics, verdict
from kvplan.plan_json import to_json
from kvplan.snippet import snippet

pytestmark = pytest.mark.browser


def copied(page, form):
    """What the copy button of a form puts on the clipboard."""
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.locator(".st-key-copy_link button").first.click()
    page.locator(".st-key-copy_link_form").get_by_text(form, exact=True).click()
    settle(page)
    page.locator("[data-testid=stCode]").hover()
    page.get_by_role("button", name="Copy to clipboard").click()
    return page.evaluate("navigator.clipboard.readText()")


def press(page, key):
    """One of the small buttons above the model."""
    page.locator(f".st-key-{key} button:visible").first.click()
    settle(page)


def go_to(page, words):
    """A plan of the list."""
    press(page, "history")
    page.get_by_role("button", name=words).click()
    settle(page)


def tensor_parallel(page, size):
    page.locator(".st-key-tp").get_by_text(str(size), exact=True).click()
    settle(page)


def test_the_copied_markdown_is_the_answer_whose_link_opens_the_plan(open_page, server):
    with open_page("/?tp=2&context=65536") as page:
        plan = Plan(tp=2, context=65536)
        report, link = evaluate(plan), encode_link(plan, server + "/")
        text = copied(page, "Markdown")
        assert text == snippet(verdict.ceiling(report), metrics.ceiling(report), link).strip()
        assert decode_link(text.partition("](")[2].partition(")")[0]) == (plan, [])


def test_the_copied_json_is_the_plan_as_a_file(open_page):
    with open_page("/paging?tp=2&context=65536") as page:
        assert copied(page, "JSON") == to_json(Plan(tp=2, context=65536)).strip()


def test_what_is_to_be_copied_fits_a_phone(open_page):
    with open_page("/" + encode_link(SHARED), width=390, height=844) as page:
        page.locator(".st-key-copy_link button").first.click()
        for form in ("Link", "Markdown", "JSON"):
            page.locator(".st-key-copy_link_form").get_by_text(form, exact=True).click()
            settle(page)
            box = page.locator("[data-testid=stCode]").bounding_box()
            assert box["x"] >= 0
            assert box["x"] + box["width"] <= 390
        assert page.evaluate("document.querySelector('[data-testid=stMain]').scrollWidth") <= 390


def test_a_plan_saved_in_one_browser_opens_in_another(open_page, tmp_path):
    with open_page("/" + encode_link(SHARED)) as page:
        press(page, "plan_file")
        with page.expect_download() as download:
            page.locator(".st-key-save_plan button:visible").first.click()
        assert download.value.suggested_filename == "kvplan-plan.json"
        text = Path(download.value.path()).read_text(encoding="utf-8")
    assert text == to_json(SHARED)
    saved = tmp_path / "plan.json"
    saved.write_text(text, encoding="utf-8")
    with open_page("/batching?layers=40") as page:
        length = page.evaluate("history.length")
        press(page, "plan_file")
        page.locator(".st-key-open_plan input[type=file]").set_input_files(saved)
        page.get_by_role("button", name="Open this plan").click()
        settle(page)
        settle(page)
        assert plan_of(page) == SHARED
        assert page.evaluate("history.length") == length + 1


def test_undo_takes_back_two_moves_one_after_the_other(open_page):
    with open_page("/?model=llama-3.1-70b&tp=4") as page:
        slider(page, "context").press("ArrowRight")
        settle(page)
        tensor_parallel(page, 8)
        assert plan_of(page) == Plan(model="llama-3.1-70b", tp=8, context=16384)
        for plan in (Plan(model="llama-3.1-70b", tp=4, context=16384), Plan(model="llama-3.1-70b", tp=4)):
            press(page, "undo")
            assert plan_of(page) == plan
            expect_answer(page, plan)
        expect(page.locator(".st-key-undo button").first).to_be_disabled()
        press(page, "redo")
        assert plan_of(page) == Plan(model="llama-3.1-70b", tp=4, context=16384)
        slider(page, "context").press("ArrowRight")
        settle(page)
        assert plan_of(page) == Plan(model="llama-3.1-70b", tp=4, context=32768)


def test_a_key_held_down_is_one_step_of_undo(open_page):
    with open_page("/?tp=2") as page:
        for _ in range(6):
            slider(page, "layers").press("ArrowRight", delay=10)
        settle(page)
        settle(page)
        assert plan_of(page) == Plan(tp=2, layers=38)
        press(page, "undo")
        assert plan_of(page) == Plan(tp=2)


def test_the_list_goes_back_to_a_plan_and_closes(open_page):
    with open_page() as page:
        tensor_parallel(page, 2)
        slider(page, "context").press("ArrowRight")
        settle(page)
        go_to(page, "as it was opened")
        assert plan_of(page) == Plan()
        expect_answer(page, Plan())
        expect(page.get_by_text("the newest first")).to_have_count(0)
        go_to(page, "context 8192 → 16384")
        assert plan_of(page) == Plan(tp=2, context=16384)


def test_the_browsers_back_after_undo_is_to_the_plan_before_it(open_page):
    with open_page("/?tp=2") as page:
        slider(page, "context").press("ArrowRight")
        settle(page)
        length = page.evaluate("history.length")
        press(page, "undo")
        assert plan_of(page) == Plan(tp=2)
        assert page.evaluate("history.length") == length + 1
        page.go_back()
        settle(page)
        assert plan_of(page) == Plan(tp=2, context=16384)
        expect_answer(page, Plan(tp=2, context=16384))
        page.go_forward()
        settle(page)
        assert plan_of(page) == Plan(tp=2)
        expect_answer(page, Plan(tp=2))
        press(page, "redo")
        assert plan_of(page) == Plan(tp=2, context=16384)


def test_nothing_in_the_sidebar_moves_with_the_first_change(open_page):
    with open_page("/?preset=llama-70b-chat-4xh100") as page:
        before = page.locator(".st-key-model").bounding_box()
        tensor_parallel(page, 8)
        assert page.locator(".st-key-model").bounding_box() == before


def test_a_link_of_another_version_is_compared_on_top_of_the_page_it_opens(open_page):
    link = encode_link(SHARED)
    recorded = link.partition("&r=")[2].partition("&")[0]
    with open_page("/paging" + link.replace(recorded, "1.2.3").replace("made=", "made=0.0.1-")) as page:
        expect(page.locator("[data-testid=stAlert]")).to_contain_text("This link recorded other results")
        expect(page.locator("[data-testid=stAlert] li")).to_have_count(3)
        assert plan_of(page) == SHARED
    with open_page("/paging" + link) as page:
        expect(page.locator("[data-testid=stAlert]")).to_have_count(0)
        expect(page.get_by_text("are still those the link recorded")).to_be_visible()
