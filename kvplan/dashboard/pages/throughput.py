"""Throughput: tokens a second and latency against batch, what limits them, the roofline, and Little's law."""

import streamlit as st

from kvplan import rates, throughput, throughput_figures, throughput_words
from kvplan.dashboard import frame
from kvplan.dashboard.inputs import VIEW_HELP
from kvplan.markdown import escape
from kvplan.units import count

PER = {"Replica": "replica", "GPU": "GPU", "User": "user"}
UNKNOWNS = {"Concurrency": "concurrency", "Rate": "rate", "Time": "time_s"}
LEAST = 1e-9
LABELS = {"concurrency": "Requests in the system", "rate": "Requests a second", "time_s": "Seconds in the system"}


def draw_rates(report, found) -> None:
    """Throughput over latency, on one axis."""
    with frame.section("Throughput against batch", "what meets every limit is tinted") as beside:
        with beside:
            per = PER[frame.choice("Output tokens of", PER, "rates_per", VIEW_HELP["rates_per"])]
        frame.main_chart(
            throughput_figures.rates_figure(report, found, per, frame.palette()),
            f"Output tokens a second rise with the batch; {throughput_words.BINDING[found.binding]}",
            key="rates",
        )
    with frame.section("Latency against batch", "of a mean request, without a queue"):
        frame.chart(
            throughput_figures.latency_figure(report, found, frame.palette()),
            "Time to first token and time per output token rise with the batch",
            key="latency",
        )


def draw_little(report, found) -> None:
    """Any two of L, lambda and W give the third; memory caps the first."""
    about = "requests in the system = requests a second × seconds in the system; give any two"
    own = {"concurrency": found.own.concurrency, "rate": found.own.requests_per_s, "time_s": found.own.e2e_s}
    with frame.section("Little's law", about) as beside, beside:
        wanted = UNKNOWNS[frame.choice("Find", UNKNOWNS, "little_unknown", VIEW_HELP["little_unknown"])]
    given = [name for name in own if name != wanted]
    columns = st.columns(3, gap="medium")
    values = {}
    for column, name in zip(columns, given, strict=False):
        with column:
            values[name] = st.number_input(
                LABELS[name],
                min_value=LEAST,
                value=max(LEAST, float(f"{own[name]:.4g}")),
                format="%.4g",
                # Another plan brings its own numbers.
                key=f"little_{name}_{own[name]:.4g}",
                help=VIEW_HELP[name],
            )
    with columns[2]:
        st.metric(LABELS[wanted], f"{throughput.little(**values):,.2f}", help=VIEW_HELP[wanted])
    st.caption(escape(throughput_words.capped(report, values)) + ".")


def draw_roofline(report, found) -> None:
    """Why decode reads and prefill computes."""
    roof = rates.roofline(report, found)
    decode, prefill = roof.points
    with frame.section("Roofline of one device", "where decode and prefill of this plan stand"):
        frame.chart(
            throughput_figures.roofline_figure(roof, frame.palette()),
            f"Decode: {decode.flop_per_byte:,.0f} FLOP a byte; prefill: {prefill.flop_per_byte:,.0f}",
            key="roofline",
        )
    words = filter(None, (throughput_words.bounds(report, found), throughput_words.helped(found)))
    frame.captions(f"{escape(line)}." for line in words)
    if part := frame.folded("Where a step's time goes", "step_parts"):
        with part:
            frame.plain_table(throughput_words.parts(decode.parts, prefill.parts))
            st.caption("Of reading and computing in matrices, and in attention, the longer counts: they overlap.")


def draw_simulated(report, found) -> None:
    """The same step time with requests that differ, come at random and wait."""
    compared = frame.once("rates_compared", report.plan, lambda: rates.compared(report, found))
    if compared is None:
        with frame.section("Simulated"):
            st.caption("Outputs as long as these take more steps than a page waits for: `kvplan simulate` runs them.")
        return
    clause = f"{count(compared.number)} requests at {compared.requests_per_s:,.2f}/s, with the same step time"
    with frame.section("Simulated", clause):
        frame.plain_table(throughput_words.comparison(compared))
        st.caption(escape(throughput_words.difference(compared)) + ".")


def draw_page() -> None:
    report = frame.current_report()
    found = rates.rates(report)
    answer, shown = throughput_words.opening(report, found), throughput_words.metrics(report, found)
    with frame.below_opening(report, answer, shown):
        if found is None:
            frame.nothing(
                "Throughput against batch",
                "With a plan that runs at least one request, its rates and its latency are shown here.",
                throughput_figures.RATES_HEIGHT,
            )
        else:
            draw_rates(report, found)
    if found is not None:
        draw_roofline(report, found)
        draw_simulated(report, found)
        draw_little(report, found)
    frame.footing(report)


draw_page()
