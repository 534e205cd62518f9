"""From one end to the other in a real browser: a newcomer, a planner, a reviewer, an engineer with a log, and somebody
with a phone."""

import csv
import json
from pathlib import Path

import pytest
from browsing import ADDRESSES, expect_answer, expect_tiles, open_menu, plan_of, settle, slider, wait_until_drawn
from playwright.sync_api import Page, expect

from kvplan import Plan, encode_link, evaluate, load_preset, verdict
from kvplan.comparison_json import plans_from_json
from kvplan.links import encode_comparison
from kvplan.recorded import results_of, results_text
from kvplan.units import short_tokens
from kvplan.verdict import plain
from kvplan.version import VERSION

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


def test_a_planner_drags_the_context_compares_dtypes_and_copies_one_link(open_page, server):
    with open_page("/?model=llama-3.1-70b&tp=4") as page:
        drag(page, "context", pixels=45)
        dragged = plan_of(page)
        assert dragged.context > Plan().context
        expect_answer(page, dragged)
        open_menu(page, "Decide", "Compare")
        page.get_by_role("button", name="fp8 KV").click()
        settle(page)
        fp8 = dragged.model_copy(update={"kv_dtype": "fp8"})
        expect_tiles(page, dragged, fp8)
        page.locator(".st-key-copy_link button").first.click()
        copied = page.locator("[data-testid=stCode]").inner_text().strip()
        assert copied == encode_comparison([dragged, fp8], f"{server}/compare")
    with open_page(copied.removeprefix(server)) as page:
        expect_tiles(page, dragged, fp8)


def test_a_reviewer_sees_what_changed_since_a_link_was_written_compares_and_exports(open_page):
    today = results_of(CHAT)
    then = today._replace(batch_ceiling=today.batch_ceiling - 1)
    link = encode_link(CHAT).replace(results_text(today), results_text(then)).replace(f"made={VERSION}", "made=0.0.9")
    with open_page("/" + link) as page:
        said = page.locator("[data-testid=stAlert]").inner_text()
        assert f"{then.batch_ceiling} → {today.batch_ceiling} sequences" in said
        assert "0.0.9" in said
        open_menu(page, "Decide", "Compare")
        page.get_by_role("button", name="Keep A as B").click()
        settle(page)
        page.locator(".st-key-tp").get_by_text("8", exact=True).click()
        settle(page)
        eight = CHAT.model_copy(update={"tp": 8})
        expect_tiles(page, eight, CHAT)
        rows = list(csv.DictReader(downloaded(page, "CSV").decode().splitlines()))
        ceiling = next(row for row in rows if row["result"] == "Batch ceiling")
        assert [float(ceiling[name]) for name in "AB"] == [results_of(plan).batch_ceiling for plan in (eight, CHAT)]
        assert plans_from_json(downloaded(page, "Save all")) == ([eight, CHAT], [])
        page.locator(".st-key-copy_link button").first.click()
        assert "# " in downloaded(page, "Review, Markdown").decode()


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
        tap_beyond_the_middle_of(page, "context")
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


def tap_beyond_the_middle_of(page: Page, field: str) -> None:
    """Touch a slider's track right of its middle."""
    box = page.locator(f".st-key-{field} [data-testid=stSlider]").bounding_box()
    thumb = slider(page, field).bounding_box()
    page.touchscreen.tap(box["x"] + 0.7 * box["width"], thumb["y"] + thumb["height"] / 2)


def drag(page: Page, field: str, pixels: int) -> None:
    """Take a slider's thumb by the mouse, move it to the right, and let go."""
    thumb = page.locator(f".st-key-{field} [data-testid=stSliderThumbValue]").locator("..")
    thumb.scroll_into_view_if_needed()
    box = thumb.bounding_box()
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    page.mouse.move(x, y)
    page.mouse.down()
    page.mouse.move(x + pixels, y, steps=6)
    page.mouse.up()
    settle(page)


def downloaded(page: Page, button: str) -> bytes:
    with page.expect_download() as download:
        page.get_by_role("button", name=button).click()
    return Path(download.value.path()).read_bytes()
