"""What every page has: the notes, the verdict with its badge and link, a row of metrics, and charts shown alike."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager

import pandas as pd
import plotly.graph_objects as go
import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from kvplan.dashboard import share
from kvplan.links import others_note
from kvplan.markdown import escape, escape_sentence
from kvplan.metrics import Metric
from kvplan.palette import DARK, LIGHT, POOL_FILL, Palette
from kvplan.plan import Plan
from kvplan.report import Report
from kvplan.specs import Source
from kvplan.spreadsheets import cell
from kvplan.units import capitalised
from kvplan.verdict import Verdict

BADGE_COLOURS = {"memory": "blue", "limit": "red", "workload": "violet"}
PAINTING_S = 0.06
"""What a browser takes to paint a chart. All that it is sent meanwhile it would draw first, so the wait costs the rest
of the page little; a slider that moves on spares it altogether."""
CHART_CONFIG = {"displayModeBar": False, "displaylogo": False, "scrollZoom": False}


def current_report() -> Report:
    """The report of the plan in the sidebar, as the entry script left it for the page."""
    return st.session_state["report"]


def palette() -> Palette:
    """The colours of the theme the browser shows."""
    return DARK if st.context.theme.type == "dark" else LIGHT


def opening(report: Report, verdict: Verdict, metrics: list[Metric], others: Sequence[Plan] = ()) -> None:
    """The top of a page: what was dropped from the link, the answer in one sentence, and its four numbers. `others`
    are plans beside the report's that the page's link carries too."""
    link_notes()
    badge = f":{BADGE_COLOURS[verdict.tone]}-badge[{escape(verdict.badge)}]"
    with st.container(horizontal=True):
        with st.container(gap="xxsmall"):
            st.header(escape_sentence(verdict.sentence), anchor=False)
            st.markdown(f"{badge} :gray[{escape(verdict.reason)}]")
        # As wide as the button, so that the sentence has all the rest and seldom wraps.
        with st.container(width="content"):
            share.copy_link(report.plan, verdict, metrics, others=others)
    with st.grid(4, min_column_width=150):
        for metric in metrics:
            st.metric(
                metric.label,
                metric.value,
                delta_description=metric.whose,
                help=metric.help,
                border=True,
                height="stretch",
            )


@contextmanager
def drawing(page: str) -> Iterator[None]:
    """Around a page, by its address: remembers which one the browser shows."""
    st.session_state["is_shown"] = st.session_state.get("shown") == page
    yield
    st.session_state["shown"] = page


@contextmanager
def below_opening(
    report: Report, verdict: Verdict, metrics: list[Metric], others: Sequence[Plan] = ()
) -> Iterator[None]:
    """A page's opening above what is drawn in the block. Where the browser shows the page already, the block is sent
    before it; else the opening would come later and push down what is there."""
    top, is_shown = st.container(), st.session_state["is_shown"]
    if is_shown:
        yield
    with top:
        opening(report, verdict, metrics, others)
    if not is_shown:
        yield


def link_notes() -> None:
    """What was dropped from the link or the file, a line each; how the results the link recorded compare with today's;
    and what was wrong with the last input."""
    session = st.session_state["session"]
    if session.others_unseen:
        st.info(f"{capitalised(others_note(len(session.others)))}.", icon=":material/compare:")
    if session.notes:
        st.warning(f"Ignored from the {session.origin}:\n{_list(session.notes)}", icon=":material/link_off:")
    if session.recorded is not None and session.recorded.changes:
        st.warning(
            f"{escape(session.recorded.sentence)}\n{_list(session.recorded.changes)}", icon=":material/difference:"
        )
    elif session.recorded is not None:
        st.caption(f":material/link: {escape(session.recorded.sentence)}")
    for line in session.wrong:
        st.error(f"Not changed: {escape(line)}", icon=":material/error:")


def _list(lines: Iterable[str]) -> str:
    return "\n".join(f"- {escape(line)}" for line in lines)


def chart(figure: go.Figure, conclusion: str, key: str, on_click: Callable[[], None] | None = None) -> None:
    """A chart in its own colours; `conclusion` is what a screen reader says. `on_click` is called when a point was
    chosen, which is then in the session under the key."""
    st.plotly_chart(
        figure,
        theme=None,
        config=CHART_CONFIG,
        alt=conclusion,
        key=key,
        on_select=on_click or "ignore",
        selection_mode="points",
    )


def main_chart(figure: go.Figure, conclusion: str, key: str, on_click: Callable[[], None] | None = None) -> None:
    """The chart that a page is opened for. Where the browser shows the page already, it paints this before the rest is
    drawn again."""
    chart(figure, conclusion, key, on_click)
    if st.session_state["is_shown"]:
        time.sleep(PAINTING_S)


def pills(label: str, options: list[str], preselected: list[str], help: str) -> list[str]:
    """A choice of lines to show. It is a view: kept in the session while its options exist, never part of a link."""
    with st.container(horizontal=True, vertical_alignment="center", width="content", gap="small"):
        # The control's own label is not shown, and with it its help.
        st.markdown(f":gray[{label.lower()}]", help=help, width="content")
        return st.pills(
            label,
            options,
            selection_mode="multi",
            default=preselected,
            label_visibility="collapsed",
            key=f"pills {' '.join(options)}",
            persist_state="session",
            help=help,
        )


def table(rows: pd.DataFrame, decimals: dict[str, int], plan_row: pd.Series | None = None) -> None:
    """A short table: numbers with thousands separators, the plan's row tinted where there is one."""
    tint = f"background-color: {POOL_FILL}; font-weight: 600"
    formats = dict.fromkeys(rows.select_dtypes("number"), _signed("{:,}")) | {
        name: _signed(f"{{:,.{places}f}}") for name, places in decimals.items()
    }
    styler = rows.style.format(formats, na_rep="–")
    if plan_row is not None:
        styler = styler.apply(lambda row: [tint if plan_row[row.name] else ""] * len(row), axis=1)
    st.table(styler, border="horizontal", hide_index=True)


def choice(label: str, options: Iterable[str], key: str, help: str, default: str | None = None) -> str:
    """One of a few, the first unless said otherwise. It is a view: kept in the session, never part of a link."""
    options = list(options)
    with st.container(horizontal=True, vertical_alignment="center", width="content", gap="xxsmall"):
        chosen = st.segmented_control(
            label,
            options,
            default=default or options[0],
            required=True,
            label_visibility="collapsed",
            key=key,
            persist_state="session",
            help=help,
            wrap=True,
        )
        # The control's own label is not shown, and with it its help.
        st.markdown("&nbsp;", help=help, width="content")
    return chosen


def csv(rows: pd.DataFrame, name: str) -> None:
    """A table as a file."""
    st.download_button(
        "CSV",
        csv_text(rows),
        file_name=name,
        mime="text/csv",
        type="tertiary",
        icon=":material/download:",
        on_click="ignore",
    )


def csv_text(rows: pd.DataFrame) -> str:
    """A table as CSV, of which a spreadsheet runs nothing."""
    return rows.map(cell).rename(columns=cell).to_csv(index=False)


def long_table(rows: pd.DataFrame, key: str) -> None:
    """A table that scrolls and can be sorted: numbers with thousands separators."""
    numbers = {name: st.column_config.NumberColumn(format="localized") for name in rows.select_dtypes("number")}
    st.dataframe(rows, hide_index=True, column_config=numbers, placeholder="–", key=key)


def plain_table(rows: list[dict]) -> None:
    """A few rows of words and numbers, wrapped."""
    st.table(
        [{name: escape(str(value)) for name, value in row.items()} for row in rows],
        border="horizontal",
        hide_index=True,
    )


@contextmanager
def section(text: str, clause: str = "") -> Iterator[st.delta_generator.DeltaGenerator]:
    """A heading with what belongs to it close below; gives the rest of the heading's row, for controls."""
    with st.container(gap="xsmall"):
        row = st.container(horizontal=True, horizontal_alignment="distribute", vertical_alignment="center")
        with row:
            heading(text, clause)
        yield row


def heading(text: str, clause: str = "") -> None:
    """A section's heading, with a grey clause where one is needed."""
    st.markdown(f"**{text}** :gray[{escape(clause)}]" if clause else f"**{text}**")


def folded(label: str, key: str) -> DeltaGenerator | None:
    """A part that most readers leave closed; None while it is, so that no drag waits for what nobody sees."""
    part = st.expander(label, type="compact", key=key, on_change="rerun")
    return part if part.open else None


def once_opened(part: DeltaGenerator, key: str, already: bool = False) -> DeltaGenerator | None:
    """A part whose content is drawn from when it is first opened, or is so `already`; None before, so that no drag
    waits for it. Then it stays: widgets that are taken away forget what they hold."""
    opened = st.session_state.setdefault("opened", set())
    if part.open or already:
        opened.add(key)
    return part if key in opened else None


def nothing(text: str, sentence: str, height: int) -> None:
    """In the place of a chart of so many pixels that cannot be drawn: its heading, and what would be shown and when."""
    with st.container(height=height, border=False):
        heading(text)
        st.caption(sentence)


def captions(lines: Iterable[str]) -> None:
    """Remarks in grey, a line each, close to each other."""
    lines = list(lines)
    if lines:
        with st.container(gap="xsmall"):
            for line in lines:
                st.caption(line)


def main_label(label: str) -> str:
    """What stands on the button of a page's main step. Not Streamlit's primary type, whose white is too faint on the
    dark theme's blue."""
    return f":blue[**{label}**]"


def once(key: str, wanted, make: Callable[[], object]):
    """What `make` gives for `wanted`, made again only where that changes; the last one is kept for this session."""
    known, made = st.session_state.get(key, (None, None))
    if known != wanted:
        made = make()
        st.session_state[key] = (wanted, made)
    return made


def footing(report: Report) -> None:
    """The end of every page: what is unusual about the plan, where each number comes from, and every figure of the
    presets it names."""
    captions(f":material/info: {escape(note)}" for note in report.notes)
    presets = {} if report.setting is None else {"model": report.setting.model, "gpu": report.setting.gpu}
    with st.container(gap="xsmall"):
        if part := folded("Where the numbers come from", "sources"):
            with part:
                plain_table(_source_rows(report.sources))
        for kind, spec in presets.items():
            if part := folded(f"All figures of {escape(spec.name)}", f"sources_{kind}"):
                with part:
                    plain_table(_source_rows(spec.sources))


def _signed(form: str) -> Callable[[float], str]:
    """A format with a true minus, as wide as a digit."""
    return lambda value: form.format(value).replace("-", "−")


def _source_rows(sources: dict[str, Source]) -> list[dict]:
    return [{"Number": name, "Confidence": source.trust, "Source": source.text} for name, source in sources.items()]
