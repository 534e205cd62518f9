"""A run of many requests, or of the trace that was read, in the process beside the server."""

from __future__ import annotations

import streamlit as st

from kvplan import pool
from kvplan.dashboard import failures, frame, jobs, trace_reader
from kvplan.dashboard.inputs import VIEW_HELP
from kvplan.markdown import escape
from kvplan.plan import Plan
from kvplan.report import Report
from kvplan.traces import Trace
from kvplan.traffic import of_trace
from kvplan.units import count

NUMBERS = {count(number): number for number in (100_000, 1_000_000)}
NONE = "none"
POLL_S = 0.4


def draw(report: Report, arrivals: tuple | None) -> None:
    """The choice, and how far the run is or what came of it. Any other input cancels it."""
    trace = trace_reader.trace_read()
    options = [NONE, *NUMBERS]
    if trace is not None:
        options.append(_name(trace))
    about = "requests, under both policies; other pages and users go on meanwhile"
    with frame.section("A longer run", about) as beside, beside:
        chosen = frame.choice("Requests of a longer run", options, "long_run", VIEW_HELP["long_run"])
    of_workload = chosen in NUMBERS
    job = _job((report.plan, chosen, arrivals if of_workload else None, None if of_workload else trace))
    if job is None:
        st.caption("Drawn from the workload, or a trace as it came once one is read: its own times, its own prefixes.")
        return
    st.fragment(_show, run_every=None if job.is_over else POLL_S)(job)


def _name(trace: Trace) -> str:
    return f"the trace, {count(trace.prompts.size)}"


def _job(wanted: tuple[Plan, str, tuple | None, Trace | None]) -> jobs.Job | None:
    """The work that is wanted now; what was wanted before is cancelled."""
    plan, chosen, arrivals, trace = wanted
    if chosen == NONE:
        return jobs.of_session("long_job", wanted, None)

    def begin() -> jobs.Job:
        return jobs.start(pool.runs_of_plan, plan, NUMBERS.get(chosen) or of_trace(trace), arrivals)

    return jobs.of_session("long_job", wanted, begin)


@failures.told()
def _show(job: jobs.Job) -> None:
    if not job.is_over:
        st.progress(job.share_done, "Running" if job.share_done else "Waiting for the worker")
        return
    if st.session_state.get("long_shown") is not job:
        # Once more, so that nothing asks for it again.
        st.session_state["long_shown"] = job
        st.rerun()
    try:
        runs = job.result()
    except ValueError as error:
        st.error(escape(str(error)))
        return
    with st.container(key="long_run_figures"):
        frame.plain_table(pool.results(runs))
