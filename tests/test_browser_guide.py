"""A newcomer's first minutes in a real browser: how many users at 32k on four H100s, and the Guide with its guesses."""

import pytest
from browsing import expect_answer, plan_of, settle
from playwright.sync_api import expect

from kvplan import Plan, evaluate, guide_words, load_preset
from kvplan.guide import answers
from kvplan.verdict import plain

pytestmark = pytest.mark.browser
CHAT = load_preset("llama-70b-chat-4xh100")
GUESSES = {"fits_short": "100", "fits_long": "54", "busy": "75%", "gain": "1.5"}


class Clicks:
    """Counts what a newcomer does."""

    def __init__(self):
        self.number = 0

    def __call__(self, locator):
        locator.click()
        self.number += 1


def guess(page, click, guesses):
    for name, text in guesses.items():
        page.locator(f".st-key-guess_{name} input").fill(text)
    click(page.get_by_role("button", name="Show me"))
    page.wait_for_selector("[data-testid=stMetricValue]")
    settle(page)


def test_how_many_users_at_32k_on_four_h100s_is_two_clicks(open_page):
    click = Clicks()
    with open_page() as page:
        click(page.locator(".st-key-ready_plan input"))
        click(page.get_by_role("option", name="70B chat on 4 × H100"))
        settle(page)
        assert click.number == 2
        assert plan_of(page) == CHAT == Plan(model="llama-3.1-70b", tp=4, context=32768)
        expect_answer(page, CHAT)
        words = page.locator("[data-testid=stMain] h2").inner_text()
        assert plain(words) == "13 sequences of 32,768 tokens fit on 4 × H100 SXM"
        on_demand = page.locator("[data-testid=stMetricValue]").nth(3)
        expect(on_demand).to_have_text(f"{evaluate(CHAT).capacity.on_demand_ceiling:,}")


def test_the_guide_takes_four_guesses_and_sets_them_beside_the_answers(open_page):
    click = Clicks()
    with open_page("/?preset=llama-70b-chat-4xh100") as page:
        click(page.get_by_role("button", name="Learn"))
        click(page.get_by_role("menuitem", name="Guide"))
        settle(page)
        expect(page.locator("[data-testid=stMain] h2")).to_contain_text("in five minutes")
        assert page.locator("[data-testid=stMetricValue]").count() == 0
        guess(page, click, GUESSES)
        assert click.number == 3
        found = answers(evaluate(CHAT))
        shown = page.locator("[data-testid=stMetricValue]").all_inner_texts()
        assert shown == [metric.value for metric in guide_words.metrics(found)]
        numbers = {"fits_short": 100, "fits_long": 54, "busy": 75, "gain": 1.5}
        for compared in guide_words.comparisons(found, numbers):
            expect(page.get_by_text(compared)).to_be_visible()
        page.wait_for_selector(".st-key-guide_batching .main-svg")
        settle(page)
        assert plan_of(page) == CHAT
        click(page.get_by_role("button", name="Guess again"))
        settle(page)
        assert page.locator(".st-key-guess_gain input").input_value() == ""


def test_a_guess_that_cannot_be_read_is_named_and_enter_shows_the_answers(open_page):
    with open_page("/guide") as page:
        field = page.locator(".st-key-guess_busy input")
        field.fill("a third")
        field.press("Enter")
        settle(page)
        expect(page.get_by_role("alert")).to_contain_text("must be a percentage from 1 to 100, such as 75; got a third")
        field.fill("33")
        field.press("Enter")
        page.wait_for_selector("[data-testid=stMetricValue]")
        expect(page.get_by_text("Your guess 33%: right within 5%")).to_be_visible()


def test_a_plan_that_does_not_run_leads_to_one_that_does(open_page):
    with open_page("/guide?tp=3") as page:
        expect(page.locator("[data-testid=stMain] h2")).to_have_text("This plan does not run as it is")
        page.get_by_role("button", name="70B chat on 4 × H100").click()
        settle(page)
        assert plan_of(page) == CHAT
        expect(page.get_by_role("button", name="Show me")).to_be_visible()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_answers_have_no_serious_accessibility_violation(open_page, scheme):
    from axe_playwright_python.sync_playwright import Axe

    with open_page("/guide?model=gemma-3-27b&tp=2", scheme=scheme) as page:
        guess(page, Clicks(), GUESSES)
        page.wait_for_selector(".st-key-guide_batching .main-svg")
        found = Axe().run(page).response["violations"]
        assert {item["id"]: item["help"] for item in found if item["impact"] in ("serious", "critical")} == {}


def test_the_answers_never_scroll_sideways_on_a_phone(open_page):
    with open_page("/guide", width=390, height=844) as page:
        guess(page, Clicks(), GUESSES)
        page.wait_for_selector(".st-key-guide_batching .main-svg")
        assert page.evaluate("document.querySelector('[data-testid=stMain]').scrollWidth") <= 390
