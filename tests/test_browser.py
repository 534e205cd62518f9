"""The dashboard in a real browser: what a planner, a reviewer and a phone see."""

import json
import re
from pathlib import Path

import pytest
from browsing import ADDRESSES, choose, expect_answer, go, plan_of, settle, slider
from playwright.sync_api import Page, expect

from kvplan import Plan, decode_link, encode_link, evaluate, model_from_hf_config
from kvplan.dashboard.share import review_file
from kvplan.links import short_query

pytestmark = pytest.mark.browser
SHARED = Plan(model="llama-3.1-70b", tp=4, context=32768, kv_dtype="fp8", gpu_memory_utilization=0.9)


def address(page: Page) -> str:
    return "?" + page.url.partition("?")[2]


def chart_label(page: Page) -> str:
    """The bold label of the plan's dot, once the chart is drawn."""
    page.wait_for_selector(".st-key-ceiling_chart .annotation-text")
    labels = page.locator(".st-key-ceiling_chart .annotation-text").all_text_contents()
    return next(label for label in labels if re.fullmatch(r"[\d,]+ at .+", label))


def test_an_untouched_page_has_a_bare_address(open_page):
    with open_page() as page:
        assert address(page) == "?"
        expect_answer(page, Plan())


def test_a_slider_moves_the_chart_the_answer_and_the_address(open_page):
    with open_page() as page:
        before = chart_label(page)
        slider(page, "context").press("ArrowRight")
        settle(page)
        assert address(page) == "?context=16384"
        expect_answer(page, Plan(context=16384))
        assert before.endswith("at 8k")
        assert chart_label(page).endswith("at 16k")


def test_every_move_reaches_the_address_and_going_back_to_automatic_leaves_it(open_page):
    with open_page() as page:
        slider(page, "layers").press("ArrowRight")
        settle(page)
        slider(page, "context").press("ArrowRight")
        settle(page)
        slider(page, "layers").press("ArrowRight")
        settle(page)
        assert plan_of(page) == Plan(layers=34, context=16384)
        slider(page, "layers").press("ArrowLeft")
        slider(page, "layers").press("ArrowLeft")
        settle(page)
        assert plan_of(page) == Plan(context=16384)


def test_a_key_held_down_loses_no_step_and_makes_no_override(open_page):
    with open_page() as page:
        for _ in range(12):
            slider(page, "layers").press("ArrowRight", delay=10)
        settle(page)
        settle(page)
        assert plan_of(page) == Plan(layers=44)


def test_a_field_set_in_a_fold_stays_in_the_address_when_the_fold_is_closed(open_page):
    with open_page() as page:
        fold = page.locator(".st-key-more_serving summary")
        fold.click()
        seqs = page.locator(".st-key-max_num_seqs input")
        seqs.fill("64")
        seqs.press("Enter")
        settle(page)
        assert plan_of(page) == Plan(max_num_seqs=64)
        fold.click()
        settle(page)
        slider(page, "context").press("ArrowRight")
        settle(page)
        assert plan_of(page) == Plan(max_num_seqs=64, context=16384)
        expect_answer(page, Plan(max_num_seqs=64, context=16384))


def test_a_shared_link_opens_the_same_plan_in_a_fresh_browser(open_page):
    with open_page("/" + encode_link(SHARED)) as page:
        assert plan_of(page) == SHARED
        expect_answer(page, SHARED)


def test_the_copied_link_is_the_full_link_of_the_plan(open_page, server):
    with open_page("/?tp=2&context=65536") as page:
        page.locator(".st-key-copy_link button").click()
        copied = page.locator("[data-testid=stCode]").inner_text().strip()
        plan = Plan(tp=2, context=65536)
        assert copied == encode_link(plan, server + "/")
        assert decode_link(copied) == (plan, [])


@pytest.mark.parametrize(("form", "ending"), [("Markdown", "md"), ("HTML", "html")])
def test_the_review_of_the_plan_is_a_file(open_page, server, form, ending):
    with open_page("/?tp=2&context=65536") as page:
        page.locator(".st-key-copy_link button").click()
        with page.expect_download() as download:
            page.get_by_role("button", name=f"Review, {form}").click()
        text = Path(download.value.path()).read_text(encoding="utf-8")
        assert download.value.suggested_filename == f"kvplan-review.{ending}"
        assert text == review_file(Plan(tp=2, context=65536), server + "/", ending)


def test_switching_pages_keeps_the_plan(open_page):
    with open_page("/?model=llama-3.1-70b&tp=4") as page:
        slider(page, "context").press("ArrowRight")
        settle(page)
        for name in ("Pool", "Batching", "Paging", "Ceiling"):
            page.get_by_role("link", name=name).click()
            settle(page)
            assert plan_of(page) == Plan(model="llama-3.1-70b", tp=4, context=16384)
        page.reload()
        page.wait_for_selector("[data-testid=stMetricValue]")
        settle(page)
        expect_answer(page, Plan(model="llama-3.1-70b", tp=4, context=16384))


def test_a_link_opens_on_any_page(open_page):
    for path in ADDRESSES.values():
        with open_page(path + encode_link(SHARED)) as page:
            assert plan_of(page) == SHARED


def test_back_leaves_an_opened_link_for_the_former_plan_in_two_steps_at_most(open_page, server):
    with open_page("/?layers=60") as page:
        go(page, server + "/" + encode_link(SHARED))
        page.go_back()
        settle(page)
        if plan_of(page) == SHARED:
            page.go_back()
            settle(page)
        assert plan_of(page) == Plan(layers=60)
        expect_answer(page, Plan(layers=60))


def test_a_ready_plan_is_one_step_of_the_history(open_page):
    with open_page("/?context=16384&tp=2") as page:
        length = page.evaluate("history.length")
        choose(page, "ready_plan", "405B")
        ready = plan_of(page)
        assert ready.model == "llama-3.1-405b"
        expect_answer(page, ready)
        assert page.evaluate("history.length") == length + 1
        page.go_back()
        settle(page)
        assert plan_of(page) == Plan(context=16384, tp=2)
        expect_answer(page, Plan(context=16384, tp=2))
        page.go_forward()
        settle(page)
        expect_answer(page, ready)


def test_a_ready_plan_that_was_changed_says_so_and_resets(open_page):
    with open_page("/?preset=llama-70b-chat-4xh100") as page:
        expect(page.get_by_text("modified")).to_have_count(0)
        slider(page, "context").press("ArrowRight")
        settle(page)
        expect(page.get_by_text("modified")).to_be_visible()
        page.get_by_role("button", name="Reset").click()
        settle(page)
        assert plan_of(page) == Plan(model="llama-3.1-70b", tp=4, context=32768)
        expect(page.get_by_text("modified")).to_have_count(0)


def test_another_model_takes_the_overrides_of_the_former_along(open_page):
    with open_page("/?layers=40&kv_heads=4&weights_gib=20&tp=2") as page:
        choose(page, "model", "llama-3.1-70b")
        assert plan_of(page) == Plan(model="llama-3.1-70b", tp=2)
        page.go_back()
        settle(page)
        assert plan_of(page) == Plan(layers=40, kv_heads=4, weights_gib=20, tp=2)


def test_what_a_link_has_wrong_is_named_and_the_rest_opens(open_page):
    with open_page("/?tp=4&context=-5&colour=<b>red</b>&model=lama-3.1-8b") as page:
        warning = page.locator("[data-testid=stAlert]").inner_text()
        assert "context" in warning
        assert "colour" in warning
        assert "llama-3.1-8b" in warning
        assert page.locator("[data-testid=stAlert] b").count() == 0
        assert plan_of(page) == Plan(tp=4)


def test_a_plan_beyond_the_sliders_is_kept(open_page):
    plan = Plan(context=10007, tp=16, kv_heads=16, layers=200, gpu_memory_gib=500, batch=900, block_size=544)
    query = "&".join(f"{name}={value}" for name, value in short_query(plan).items())
    with open_page("/?" + query) as page:
        assert plan_of(page) == plan
        slider(page, "context").press("ArrowRight")
        settle(page)
        assert plan_of(page) == plan.model_copy(update={"context": 16384})


def test_a_pasted_config_opens_as_a_plan_whose_address_carries_it(open_page):
    config = {
        "model_type": "llama",
        "architectures": ["LlamaForCausalLM"],
        "num_hidden_layers": 16,
        "hidden_size": 2048,
        "intermediate_size": 8192,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "vocab_size": 128256,
        "max_position_embeddings": 131072,
        "tie_word_embeddings": True,
    }
    with open_page("/?context=16384") as page:
        page.locator(".st-key-more_model summary").click()
        page.locator(".st-key-config button").first.click()
        page.locator(".st-key-config_text textarea").fill(json.dumps(config))
        page.get_by_role("button", name="Use this model").click()
        settle(page)
        settle(page)
        plan = plan_of(page)
        model = model_from_hf_config(config)
        assert evaluate(plan).engine == evaluate(Plan(context=16384), model=model).engine
        expect_answer(page, plan)
        page.get_by_role("link", name="Paging").click()
        settle(page)
        page.reload()
        page.wait_for_selector("[data-testid=stMetricValue]")
        settle(page)
        assert plan_of(page) == plan


START = """\
(APIServer pid=1) INFO 08-14 14:06:51 [api_server.py:1896] vLLM API server version 0.11.0
(EngineCore_DP0 pid=8) INFO 08-14 14:07:02 [core.py:77] Initializing a V1 LLM engine (v0.11.0) with config: \
model='meta-llama/Llama-3.1-8B-Instruct', max_seq_len=32768, tensor_parallel_size=2, kv_cache_dtype=auto
(EngineCore_DP0 pid=8) INFO 08-14 14:07:11 [gpu_model_runner.py:2653] Model loading took 7.5100 GiB and 4.0 seconds
(EngineCore_DP0 pid=8) INFO 08-14 14:07:20 [gpu_worker.py:298] Available KV cache memory: 60.25 GiB
(EngineCore_DP0 pid=8) INFO 08-14 14:07:20 [kv_cache_utils.py:1087] GPU KV cache size: 987,136 tokens
"""


def test_a_pasted_log_is_explained_and_becomes_the_plan(open_page):
    with open_page("/engine-log") as page:
        page.get_by_role("textbox", name="Start-up log").fill(START)
        page.keyboard.press("Control+Enter")
        expect(page.locator("h3")).to_contain_text("vLLM 0.11.0 has a pool of 60.25 GiB a device")
        page.get_by_role("button", name="Make this my plan").click()
        settle(page)
        settle(page)
        plan = plan_of(page)
        assert (plan.tp, plan.context, plan.weights_gib) == (2, 32768, 15.02)
        assert evaluate(plan).memory.pool_bytes == round(60.25 * 2**30)
        page.get_by_role("link", name="Ceiling").click()
        page.wait_for_selector("[data-testid=stMetricValue]")
        settle(page)
        assert plan_of(page) == plan
        expect_answer(page, plan)


def test_a_long_run_shows_its_figures_while_the_sliders_stay_live(open_page):
    with open_page("/pool?workload=seeded-200&max_num_seqs=16") as page:
        page.locator(".st-key-long_run").get_by_text("100,000", exact=True).click()
        figures = page.locator(".st-key-long_run_figures")
        figures.get_by_text("Completed", exact=True).wait_for(timeout=60_000)
        row = figures.locator("tr", has=page.get_by_text("Completed", exact=True))
        assert row.inner_text().split()[1:] == ["100,000", "100,000"]
        slider(page, "context").press("ArrowRight")
        settle(page)
        assert plan_of(page) == Plan(workload="seeded-200", max_num_seqs=16, context=16384)


def test_a_cell_that_is_clicked_opens_as_the_plan_with_its_own_ceiling(open_page):
    with open_page("/sweep?model=llama-3.1-70b&tp=4") as page:
        plot = page.locator(".st-key-sweep_map .nsewdrag").first
        plot.scroll_into_view_if_needed()
        box = plot.bounding_box()
        # The cell of 32k and tp 8, the sixth of eight columns and the highest of four rows.
        x, y = box["x"] + 5.5 / 8 * box["width"], box["y"] + 0.5 / 4 * box["height"]
        page.mouse.move(x, y)
        expect(page.locator(".st-key-sweep_map .hoverlayer")).to_contain_text("32,768 tokens, tp 8, bf16 cache")
        page.mouse.click(x, y)
        settle(page)
        plan = Plan(model="llama-3.1-70b", tp=8, context=32768)
        ceiling = evaluate(plan).capacity.batch_ceiling
        expect(page.locator("[data-testid=stMain]")).to_contain_text(f"Batch ceiling: {ceiling} sequences")
        page.locator(".st-key-sweep_open button").click()
        page.wait_for_selector(".st-key-ceiling_chart .main-svg")
        settle(page)
        assert "/sweep" not in page.url
        assert plan_of(page) == plan
        expect_answer(page, plan)
        slider(page, "context").press("ArrowRight")
        settle(page)
        assert plan_of(page) == plan.model_copy(update={"context": 65536})


def test_back_leaves_an_opened_cell_for_the_map_and_its_plan(open_page):
    with open_page("/sweep?model=llama-3.1-70b&tp=4") as page:
        choose(page, "sweep_cell_tp", "tp 8")
        page.locator(".st-key-sweep_open button").click()
        page.wait_for_selector(".st-key-ceiling_chart .main-svg")
        settle(page)
        assert plan_of(page) == Plan(model="llama-3.1-70b", tp=8)
        for tp in (8, 4):
            page.go_back()
            settle(page)
            assert "/sweep" in page.url
            assert plan_of(page) == Plan(model="llama-3.1-70b", tp=tp)


SHEET_PX = {
    "A4": ((210 - 24) / 25.4 * 96, (297 - 16) / 25.4 * 96),
    "Letter": (816 - 24 / 25.4 * 96, 1056 - 16 / 25.4 * 96),
}
"""Width and height of a sheet in CSS pixels, without the margins that the review's own style asks for."""


@pytest.mark.parametrize("sheet", SHEET_PX)
@pytest.mark.parametrize(
    "plan", [SHARED, Plan(model="qwen3-next-80b-a3b", tp=4, context=65536)], ids=["full", "hybrid"]
)
def test_what_decides_in_a_review_prints_on_one_sheet(browser, tmp_path, sheet, plan):
    path = tmp_path / "review.html"
    path.write_text(review_file(plan, "https://plans.example.org/", "html"), encoding="utf-8")
    width, height = SHEET_PX[sheet]
    page = browser.new_page(viewport={"width": int(width), "height": int(height)})
    page.emulate_media(media="print")
    page.goto(path.as_uri())
    expect(page.locator(".charts .main-svg").first).to_be_visible()
    bottoms = page.evaluate(
        "[...document.querySelectorAll('.charts, .front, .link')].map(e => e.getBoundingClientRect().bottom)"
    )
    assert max(bottoms) <= height
    page.close()
