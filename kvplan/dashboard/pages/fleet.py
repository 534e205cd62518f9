"""Fleet: how many replicas meet the targets, what they cost, and what other splits of a replica would."""

from functools import partial

import pandas as pd
import streamlit as st

from kvplan import fleet_figures, fleet_search, fleet_tables, fleet_words, frontier, metrics, verdict
from kvplan.dashboard import failures, frame, jobs
from kvplan.dashboard.inputs import VIEW_HELP
from kvplan.fleet import NO_FLEET
from kvplan.markdown import escape

LATENCIES = {name: field for field, name in fleet_words.TIMES.items()}
POLL_S = 0.4
PANEL_HEIGHT = 400
"""Pixels of the search, whether it runs or is done: those of the picture beside it with its heading."""


def search_of(plan) -> jobs.Job:
    """The search for this plan, in the process beside the server."""
    return jobs.start(fleet_search.search, plan, None)


def outcome(job) -> tuple[fleet_search.Found | None, str | None]:
    """What the search found, or why it could not; neither while it runs."""
    if job is None or not job.is_over:
        return None, None
    try:
        return job.result(), None
    except ValueError as error:
        return None, str(error)


@failures.told()
def show_search(report, job, found, problem) -> None:
    """How far the search is, or its table, in the same place."""
    if job is None:
        st.caption("Nothing to simulate, as this plan runs no request. Open a split that does.")
    elif not job.is_over:
        st.progress(job.share_done, "Simulating" if job.share_done else "Waiting for the worker")
        st.caption("Until then the numbers above are the closed form's.")
    elif found is None and problem is None:
        # It ended since the page was drawn: once more, with its numbers.
        st.rerun()
    elif problem is not None:
        st.error(escape(problem))
        if st.button("Search again", key="fleet_again", help="Begins the search anew."):
            del st.session_state["fleet_job"]
            st.rerun()
    else:
        frame.plain_table(fleet_tables.search_rows(found))


def draw_frontier(report, points, found) -> str:
    """Cost against latency, and which latency was chosen."""
    with frame.section("Cost against latency", "other splits, by the closed form") as beside:
        # As high as the button beside the other heading.
        with (
            beside,
            st.container(height=35, border=False, horizontal=True, vertical_alignment="center", width="content"),
        ):
            latency = LATENCIES[frame.choice("Latency", LATENCIES, "fleet_latency", VIEW_HELP["fleet_latency"], "TPOT")]
        if points:
            figure = fleet_figures.frontier_figure(report, points, found, latency, frame.palette())
            frame.main_chart(figure, fleet_words.frontier_conclusion(report, points), key="frontier")
        else:
            st.caption("The closed form has no fleet for any split of up to 16 GPUs.")
    return latency


def draw_search(report, job, found, problem) -> None:
    """How the simulator came to its number."""
    rows = [] if found is None else fleet_tables.search_rows(found)
    panel = st.container(height=PANEL_HEIGHT, border=False, key="fleet_search")
    with panel, frame.section("Replicas tried in the simulator", "the worst run of each") as beside:
        with beside:
            # What scrolls must hold something that the keyboard reaches.
            frame.csv(pd.DataFrame(rows), "kvplan-replicas.csv")
        run_every = None if job is None or job.is_over else POLL_S
        st.fragment(show_search, run_every=run_every)(report, job, found, problem)


def draw_words(report, points, found, fleet) -> None:
    """What the fleet is for, whether it is there, whose its prices are, and below how the search went, a line each."""
    lines = []
    if fleet.replicas is not None:
        lines.extend((fleet_words.headroom(report, fleet), fleet_words.owned(report.plan, fleet)))
        lines.append(fleet_words.busy(report, fleet))
    frame.captions(f"{escape(line)}." for line in filter(None, [*lines, fleet_words.prices(report)]))
    how = [fleet_words.split_at_random()]
    if found is not None:
        beside = fleet_words.beside_closed_form(report, points, found)
        how = [fleet_words.why(report, found), beside, fleet_words.searched(found), *how]
    with st.expander("How it is simulated, and why it differs", type="compact", key="fleet_how"):
        frame.captions(f"{escape(line)}." for line in filter(None, how))


def draw_table(report, points, latency) -> None:
    """The splits, row by row; a name opens its plan."""
    rows = pd.DataFrame(fleet_tables.frontier_rows(report, points, latency))
    own = pd.Series([point is frontier.own(points, report.plan) for point in points])
    # Relative, whatever path the app is served under.
    linked = [f"[{name}](<.{link}>)" for name, link in zip(rows["Split"], rows["Link"], strict=True)]
    decimals = {"USD an hour": 2, "USD a million": 3, "TTFT, s": 3, "TPOT, ms": 1}
    with frame.section("Splits of a replica", "a name opens its plan; the tinted row is this one") as beside:
        with beside:
            frame.csv(rows, "kvplan-fleet.csv")
        frame.table(rows.assign(Split=linked).drop(columns="Link"), decimals=decimals, plan_row=own)
        st.caption(escape(fleet_words.closed_form_only()) + ".")


def draw_fleet(report, runs) -> None:
    """The answer, the picture and the tables of requests that come at a rate."""
    points = frontier.frontier(report.plan)
    job = jobs.of_session("fleet_job", report.plan, partial(search_of, report.plan)) if runs else None
    found, problem = outcome(job)
    closed = frontier.own(points, report.plan)
    if found is not None:
        fleet, of = found.fleet, "simulated"
    else:
        fleet, of = closed.fleet if closed and closed.meets else NO_FLEET, "closed form"
    if runs:
        answer = fleet_words.verdict(report, points, found, simulating=problem is None)
        shown = fleet_words.metrics(report, fleet, of)
    else:
        answer, shown = verdict.ceiling(report), metrics.ceiling(report)
    with frame.below_opening(report, answer, shown):
        left, right = st.columns(2, gap="medium")
        with left, st.container(gap="xsmall"):
            latency = draw_frontier(report, points, found)
    with right:
        draw_search(report, job, found, problem)
    draw_words(report, points, found, fleet)
    if points:
        draw_table(report, points, latency)


def draw_page() -> None:
    report = frame.current_report()
    runs = report.engine.fits and report.capacity.batch_ceiling > 0
    if frontier.has_rate(report):
        draw_fleet(report, runs)
    else:
        if runs:
            frame.opening(report, fleet_words.no_rate(report), fleet_words.replica_metrics(report))
        else:
            frame.opening(report, verdict.ceiling(report), metrics.ceiling(report))
        frame.nothing("Cost against latency", escape(fleet_words.rate_wanted()), PANEL_HEIGHT)
    frame.footing(report)


draw_page()
