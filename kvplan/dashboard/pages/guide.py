"""Guide: one plan in five steps, after a guess of four numbers, with every number's arithmetic spelt out."""

import streamlit as st

from kvplan import curves, figures, guide, guide_words, verdict
from kvplan.dashboard import frame
from kvplan.dashboard.sidebar import open_plan, ready_plans
from kvplan.markdown import escape, escape_sentence

KEYS = {question.name: f"guess_{question.name}" for question in guide.QUESTIONS}
PAGES = "kvplan/dashboard/pages"


def forget() -> None:
    """Ask again: no guess, and nothing shown."""
    st.session_state.pop("guide_guesses", None)
    st.session_state.update(dict.fromkeys(KEYS.values(), ""))


def guesses_of(plan) -> dict | None:
    """What was guessed of this plan, None until its answers are asked for; another plan starts anew."""
    if st.session_state.get("guide_plan") != plan:
        st.session_state["guide_plan"] = plan
        forget()
    return st.session_state.get("guide_guesses")


def draw_step(number: int, step) -> None:
    """A step's sentence, its number and its arithmetic."""
    with st.container(border=True, gap="xsmall"):
        frame.heading(f"{number} {step.title}")
        st.markdown(escape(step.sentence))
        st.subheader(escape(step.number), anchor=False)
        for line in step.arithmetic:
            st.markdown(f":gray[{escape(line)}]")


def draw_ready(report, words: str) -> None:
    """Other plans to take, a button each."""
    st.markdown(f":gray[{words}]")
    with st.container(horizontal=True, gap="xsmall", key="guide_ready"):
        for ready in ready_plans().values():
            if ready.plan != report.plan and st.button(escape(ready.name), key=f"guide {ready.id}"):
                open_plan(ready.plan)


def draw_questions() -> None:
    """Four fields, each of which may stay empty, and the button that shows the answers."""
    frame.heading("Guess first", "four numbers, before you see them; any may stay empty")
    with st.form("guide_form"):
        with st.grid(4, min_column_width=150):
            texts = {
                question.name: st.text_input(
                    question.label,
                    key=KEYS[question.name],
                    max_chars=20,
                    placeholder="no guess",
                    help=question.help,
                    persist_state="session",
                )
                for question in guide.QUESTIONS
            }
        asked = st.form_submit_button(frame.main_label("Show me"), key="guide_show")
    if asked:
        guesses, wrong = guide.read_guesses(texts)
        for line in wrong:
            st.error(escape(line), icon=":material/error:")
        if not wrong:
            st.session_state["guide_guesses"] = guesses
            st.rerun()


def draw_answers(report, guesses) -> None:
    """The four answers, beside each the guess and how far off it was, and why."""
    found = frame.once("guide_answers", report.plan, lambda: guide.answers(report))
    with frame.section("The answers") as beside, beside:
        st.button("Guess again", type="tertiary", key="guide_again", icon=":material/refresh:", on_click=forget)
    words = zip(
        guide_words.metrics(found),
        guide_words.comparisons(found, guesses),
        guide_words.reasons(found),
        strict=True,
    )
    with st.grid(4, min_column_width=150):
        for metric, compared, reason in words:
            with st.container(border=True, height="stretch", gap="xsmall"):
                st.metric(metric.label, metric.value, delta_description=metric.whose, help=metric.help)
                if compared:
                    st.markdown(f"**{escape(compared)}**")
                st.caption(f"{escape(reason)}.")


def draw_steps(report) -> None:
    """What a token costs, what is left, how many fit, and how well the batch is used."""
    _, *working, batching = guide_words.steps(report)
    left, right = st.columns([2.45, 1], gap="medium")
    with left:
        for number, step in enumerate(working, start=2):
            draw_step(number, step)
    with right, frame.section("One device"):
        frame.chart(figures.memory_figure(report, frame.palette()), f"KV pool: {working[1].number}", key="guide_memory")
    draw_step(5, batching)
    frame.chart(
        figures.utilisation_figure(report, curves.utilisation(report), frame.palette()),
        verdict.plain(verdict.batching(report).sentence),
        key="guide_batching",
    )


def draw_next() -> None:
    """Where to go from here."""
    frame.heading("What next", "every page asks the same plan another question")
    for name, shows in guide_words.NEXT.items():
        with st.container(horizontal=True, vertical_alignment="center", gap="small"):
            st.page_link(f"{PAGES}/{name}.py", icon=":material/arrow_forward:", width="content")
            st.markdown(f":gray[{escape(shows)}]", width="content")


def draw_page() -> None:
    report = frame.current_report()
    frame.link_notes()
    if not guide.runs(report):
        st.header("This plan does not run as it is", anchor=False)
        st.markdown(escape_sentence(f"{verdict.ceiling(report).sentence}."))
        draw_ready(report, "Nothing is broken: change it in the sidebar, or walk through a plan that runs.")
    else:
        guesses = guesses_of(report.plan)
        st.header(escape(guide_words.opening(report)), anchor=False)
        draw_step(1, guide_words.plan_step(report))
        draw_ready(report, "Keep it, change it in the sidebar, or take another.")
        if guesses is None:
            draw_questions()
        else:
            draw_answers(report, guesses)
            draw_steps(report)
            draw_next()
    frame.footing(report)


draw_page()
