"""The Guide page, driven without a browser: guesses of every sort, what they are set beside, and when they go."""

import pytest
from test_pages import opened, plan_of

from kvplan import Plan, evaluate, guide_words, load_preset, presets
from kvplan.guide import QUESTIONS, answers
from kvplan.links import short_query
from kvplan.markdown import escape

GUESSES = {"fits_short": "100", "fits_long": "54", "busy": "75%", "gain": "1.5"}


def page(query=None):
    return opened(query, "guide")


def key(name):
    return f"guess_{name}"


def shown(app, guesses=None):
    """The page with these guesses typed in and its button pressed."""
    for name, text in (guesses or {}).items():
        app.text_input(key=key(name)).set_value(text)
    app.button(key="guide_show").click().run()
    assert not app.exception
    return app


def words(app):
    return [element.value for element in (*app.markdown, *app.caption)]


def asks(app):
    return any(field.key == key("gain") for field in app.text_input)


def compared(app):
    return [text.strip("*") for text in words(app) if text.startswith("**Your guess")]


def test_before_it_is_asked_the_page_gives_no_answer_away():
    app = page()
    assert asks(app)
    assert app.header[0].value == escape(guide_words.opening(evaluate(Plan())))
    assert len(app.metric) == len(app.get("plotly_chart")) == 0
    found = answers(evaluate(Plan()))
    said = " ".join(words(app))
    for metric in guide_words.metrics(found):
        assert metric.value not in said


def test_every_question_has_help_and_an_empty_field():
    app = page()
    fields = {field.key: field for field in app.text_input if field.key.startswith("guess_")}
    assert {name: field.value for name, field in fields.items()} == {key(question.name): "" for question in QUESTIONS}
    assert all(field.help for field in fields.values())


def test_guesses_stand_beside_the_answers_with_how_far_off_they_are():
    app = shown(page(), GUESSES)
    assert not asks(app)
    found = answers(evaluate(Plan()))
    assert [metric.value for metric in app.metric] == [metric.value for metric in guide_words.metrics(found)]
    # 219 and 54 requests, 34.6%, 2.89 times: the ceilings at 2k and 8k and the Batching page's numbers.
    assert [metric.value for metric in app.metric] == ["219", "54", "34.6%", "2.89×"]
    assert compared(app) == [
        escape(text)
        for text in (
            "Your guess 100: 2.2 times too low",
            "Your guess 54: right",
            "Your guess 75%: 2.2 times too high",
            "Your guess 1.5×: 48% too low",
        )
    ]
    for reason in guide_words.reasons(found):
        assert f"{escape(reason)}." in words(app)


def test_show_me_works_without_a_guess():
    app = shown(page())
    assert [metric.value for metric in app.metric] == ["219", "54", "34.6%", "2.89×"]
    assert compared(app) == []


def test_one_guess_is_compared_alone():
    assert compared(shown(page(), {"gain": "2.89"})) == [escape("Your guess 2.89×: right")]


def test_guesses_that_cannot_be_read_are_named_all_at_once_and_nothing_is_shown():
    app = shown(page(), GUESSES | {"fits_short": "many", "busy": "<b>150</b>"})
    lines = [error.value.replace("\\", "") for error in app.error]
    assert lines == [
        "Requests that fit at 2,048 tokens: must be a whole number from 0 to 10,000,000, such as 100; got many",
        "Busy share of a static batch, %: must be a percentage from 1 to 100, such as 75; got <b>150</b>",
    ]
    assert asks(app)
    assert len(app.metric) == 0
    assert len(compared(shown(app, {"fits_short": "100", "busy": "75"}))) == 4


def test_every_step_is_spelt_out_with_this_plans_numbers():
    app = shown(page())
    said = words(app)
    for step in guide_words.steps(evaluate(Plan())):
        assert escape(step.number) in [element.value for element in app.subheader]
        assert escape(step.sentence) in said
        assert all(f":gray[{escape(line)}]" in said for line in step.arithmetic)
    assert f":gray[{escape('2 × 32 layers × 8 KV heads × 128 × 2 B = 131,072 B on each device')}]" in said
    assert len(app.get("plotly_chart")) == 2
    assert len(app.get("page_link")) == len(guide_words.NEXT)


def test_guess_again_takes_the_guesses_and_the_answers_away():
    app = shown(page(), GUESSES)
    app.button(key="guide_again").click().run()
    assert not app.exception
    assert asks(app)
    assert {app.text_input(key=key(name)).value for name in GUESSES} == {""}
    assert compared(shown(app)) == []


def test_another_plan_is_guessed_anew():
    app = shown(page(), GUESSES)
    app.select_slider(key="context").set_value(16384).run()
    assert plan_of(app) == Plan(context=16384)
    assert asks(app)
    assert {app.text_input(key=key(name)).value for name in GUESSES} == {""}


def test_guesses_stay_while_other_pages_are_looked_at_and_go_with_another_plan():
    app = shown(page(), GUESSES)
    app.switch_page("kvplan/dashboard/pages/paging.py").run()
    app.switch_page("kvplan/dashboard/pages/guide.py").run()
    assert len(compared(app)) == 4
    app.switch_page("kvplan/dashboard/pages/paging.py").run()
    app.select_slider(key="context").set_value(16384).run()
    app.switch_page("kvplan/dashboard/pages/guide.py").run()
    assert not app.exception
    assert asks(app)


def test_guesses_are_no_part_of_the_plan_or_its_address():
    app = shown(page({"tp": "2"}), GUESSES)
    assert plan_of(app) == Plan(tp=2)
    assert dict(app.query_params) == {"tp": "2"}


@pytest.mark.parametrize(
    ("query", "why"),
    [
        ({"tp": "3"}, "must be divisible by tp"),
        ({"model": "llama-3.1-70b"}, "needs tp 2"),
        ({"model": "llama-3.1-70b", "tp": "2", "context": "131072"}, "the longest that fits is"),
        ({"kv_cache_memory_bytes": "1000000000000"}, "Does not fit"),
    ],
)
def test_a_plan_that_does_not_run_says_why_and_offers_those_that_do(query, why):
    app = page(query)
    assert app.header[0].value == "This plan does not run as it is"
    assert any(why in text for text in words(app))
    assert not asks(app)
    assert len(app.metric) == 0
    offered = [button.key for button in app.button if button.key.startswith("guide ")]
    assert offered == [f"guide {name}" for name in presets("plan")]
    app.button(key="guide llama-70b-chat-4xh100").click().run()
    assert plan_of(app) == load_preset("llama-70b-chat-4xh100")
    assert asks(app)


def test_a_ready_plan_is_taken_from_the_page_and_not_offered_to_itself():
    app = page()
    offered = {button.key for button in app.button if button.key.startswith("guide ")}
    assert offered == {f"guide {name}" for name in presets("plan")} - {"guide llama-8b-chat-h100"}
    app.button(key="guide llama-8b-chat-l4").click().run()
    assert plan_of(app) == load_preset("llama-8b-chat-l4")


@pytest.mark.parametrize(
    "plan",
    [
        Plan(model="gemma-3-27b", tp=2),
        Plan(model="deepseek-v3", gpu="h200", tp=8),
        Plan(model="deepseek-v4-flash", gpu="h200", tp=8),
        Plan(model="falcon-mamba-7b"),
        Plan(context=2048, kv_cache_memory_bytes=2**29),
    ],
    ids=lambda plan: str(plan.model_dump(exclude_defaults=True)),
)
def test_a_plan_of_every_kind_has_its_answers(plan):
    app = shown(page(short_query(plan)), GUESSES)
    found = answers(evaluate(plan))
    assert [metric.value for metric in app.metric] == [metric.value for metric in guide_words.metrics(found)]
    assert compared(app) == [
        escape(text)
        for text in guide_words.comparisons(found, {"fits_short": 100, "fits_long": 54, "busy": 75, "gain": 1.5})
    ]


def test_a_text_that_cannot_be_read_is_said_here_too():
    app = page({"groups": "full:8x8x128"})
    app.text_input(key="groups").set_value("full:8").run()
    assert "groups" in app.error[0].value
