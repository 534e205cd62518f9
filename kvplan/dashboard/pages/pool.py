"""Pool: the blocks over time, under reservation and on demand, who holds them, and the life of one request."""

import pandas as pd
import streamlit as st

from kvplan import lifecycle, metrics, moments, pool, pool_figures, shapes, verdict
from kvplan.dashboard import frame, long_run
from kvplan.dashboard.inputs import VIEW_HELP
from kvplan.markdown import escape
from kvplan.units import count, gib_or_less

AT_ONCE, AT_RATE = "all at once", "at the plan's rate"


def draw_runs(report, runs) -> None:
    """Both policies on the same requests: occupancy, and requests that run."""
    last = pool_figures.last_step(runs)
    columns, draws = st.columns(2, gap="medium"), (frame.main_chart, frame.chart)
    for column, draw, run in zip(columns, draws, (runs.reserve, runs.on_demand), strict=True):
        with column, st.container(gap="xsmall"):
            name = pool_figures.POLICY_NAMES[run.outcome.policy].capitalize()
            result = f"{name}: {count(run.outcome.running_before_drain)} run, {count(run.outcome.steps)} steps"
            frame.heading(result)
            figure = pool_figures.occupancy_figure(report, run, last, frame.palette())
            draw(figure, result, key=f"pool_{run.outcome.policy}")
    st.caption(
        "Booked in blue, tokens held in green, the pool's end dashed; a tick above it is a preemption. Requests are "
        "admitted first come, first served; who is preempted computes its cache again."
    )
    clause = "; ".join(filter(None, ("on the same pool, against steps", verdict.cut(report, runs))))
    with frame.section("Requests that run", clause):
        frame.chart(
            pool_figures.running_figure(runs, last, frame.palette()),
            "Requests running against steps under both policies",
            key="pool_running",
        )


def draw_holders(report, runs) -> None:
    """Who holds what in a moment of the run on demand."""
    decimals = dict.fromkeys(("Held, MiB", "Booked on demand, MiB", "Booked by reserve, MiB"), 1)
    with frame.section("Who holds what", "requests running together on demand, MiB on each device") as beside:
        with beside:
            moment = frame.choice("Moment", runs.moments, f"moment {' '.join(runs.moments)}", VIEW_HELP["moment"])
        frame.table(pd.DataFrame(moments.holders(report, runs.moments[moment])), decimals=decimals)
        st.caption(escape(verdict.growth(report, runs.moments[moment])) + ".")


def draw_life(report, runs) -> None:
    """One request, stage by stage, and its memory."""
    life = lifecycle.lifecycle(report, max_tokens=runs.reserve.outcome.max_tokens)
    means = f"prompt {count(life.prompt)}, output {count(life.output)} tokens"
    with frame.section("One request from admission to release", f"the workload's means: {means}; sizes on each device"):
        with st.grid(4, min_column_width=150):
            for name, words in verdict.stages(report, life).items():
                with st.container(border=True, height="stretch", gap="xxsmall"):
                    st.markdown(f"**{name}**")
                    st.caption(escape(words))
        frame.chart(
            pool_figures.life_figure(life, frame.palette()),
            f"One request's memory; reserve books {gib_or_less(life.reserved_bytes)} from the beginning",
            key="life_chart",
        )
        st.caption(escape(verdict.cache_saves(life)) + ".")


def draw_too_long(report, arrivals) -> None:
    """What a page says of a plan whose requests take more steps than it waits for."""
    frame.opening(report, verdict.ceiling(report), metrics.ceiling(report))
    frame.heading("The pool over time")
    st.caption(
        "These requests take more steps than a page waits for. A longer run goes on beside the server, and "
        "`kvplan simulate` in a shell."
    )
    long_run.draw(report, arrivals)
    frame.footing(report)


def draw_page() -> None:
    report = frame.current_report()
    if not (report.engine.fits and report.capacity.batch_ceiling):
        frame.opening(report, verdict.ceiling(report), metrics.ceiling(report))
        frame.nothing(
            "The pool over time",
            "With a plan that runs at least one request, its blocks are shown here step by step.",
            pool_figures.OCCUPANCY_HEIGHT,
        )
        frame.footing(report)
        return
    arrivals = pool.arrivals_of(report.setting)
    at_rate = arrivals is not None and st.session_state.get("pool_arrivals") == AT_RATE
    number = pool.usual_number(report)
    runs = frame.once(
        "pool_runs",
        (report.plan, at_rate),
        lambda: pool.runs_at_once(report, pool.requests_of(report.setting, number), arrivals if at_rate else None),
    )
    if runs is None:
        draw_too_long(report, arrivals if at_rate else None)
        return
    about = "what is booked and what is held, in each step"
    with (
        frame.below_opening(report, verdict.pool(report, runs), metrics.pool(report, runs)),
        frame.section("The same requests under both policies", about) as beside,
    ):
        if arrivals is not None:
            about = f"At {arrivals[1]:,.2f} requests/s, with gaps that vary by {arrivals[2]:.2g} times their mean."
            with beside:
                frame.choice("How requests come", (AT_ONCE, AT_RATE), "pool_arrivals", help=about)
        draw_runs(report, runs)
    if part := frame.folded("All figures of both runs", "pool_figures"):
        with part:
            frame.plain_table(pool.results(runs))
    if runs.moments:
        draw_holders(report, runs)
    draw_life(report, runs)
    with frame.section(
        "The tensors of this cache", "on a device; dimensions: layers, key and value, batch, heads, tokens, width"
    ):
        frame.plain_table(shapes.shapes(report))
    long_run.draw(report, arrivals if at_rate else None)
    frame.footing(report)


draw_page()
