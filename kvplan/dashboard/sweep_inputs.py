"""What a map shows and what its axes are. These are a view: kept in the session, never part of a link."""

from __future__ import annotations

from collections.abc import Iterable

import streamlit as st

from kvplan.markdown import escape
from kvplan.report import Report
from kvplan.sweep_axes import Axis, axis, offered, ready
from kvplan.sweep_grid import QUANTITIES, Quantity, limit_of
from kvplan.sweep_words import TITLES, amount, axis_note, said

NONE = "none"
NAMES = {quantity.name: quantity for quantity in QUANTITIES}
AXIS_HELP = (
    "Values with commas, or a range: first:last:step, first:last:x2, first:last:lin25 or first:last:log25; auto is "
    "what the model, the GPU or the engine has. Empty: the values to begin with."
)


def draw(report: Report) -> tuple[Quantity, float | None, Axis, Axis, Axis | None]:
    """What is shown, its limit if there is one, and the axes across, upwards and in turn."""
    shown, across, upwards, in_turn = st.columns(4, gap="medium")
    fields = offered(report)
    with shown, st.container(gap="xsmall"):
        quantity, limit = _quantity(report)
    with across, st.container(gap="xsmall"):
        x = _axis(report, "Across", "x", fields, "context")
    with upwards, st.container(gap="xsmall"):
        y = _axis(report, "Upwards", "y", [field for field in fields if field != x.field], "tp")
    with in_turn, st.container(gap="xsmall"):
        others = [NONE, *(field for field in fields if field not in (x.field, y.field))]
        third = _axis(report, "One at a time", "third", others, "kv_dtype")
    return quantity, limit, x, y, third


def one_of(third: Axis) -> int:
    """The value of the third axis that is shown, as pills; the plan's own at first."""
    key = f"sweep_third_{third.field}"
    _keep(key, third.texts, third.texts[third.own or 0])
    chosen = st.pills(
        TITLES[third.field],
        third.texts,
        format_func=lambda text: said(third, third.texts.index(text)),
        required=True,
        label_visibility="collapsed",
        key=key,
        persist_state="session",
    )
    return third.texts.index(chosen)


def cell(x: Axis, y: Axis) -> tuple[int, int]:
    """The column and the row of the plan that is looked at, each by a selector; the plan's own at first."""
    return _place(x), _place(y)


def choose(key: str, x: Axis, y: Axis) -> None:
    """Look at the plan whose cell was clicked on in the chart of this key."""
    for point in st.session_state[key].selection.points:
        column, row = point["customdata"]
        st.session_state[_cell_key(x)], st.session_state[_cell_key(y)] = x.texts[column], y.texts[row]


def _quantity(report: Report) -> tuple[Quantity, float | None]:
    _keep("sweep_quantity", NAMES, QUANTITIES[0].name)
    quantity = NAMES[st.selectbox("Shown", NAMES, key="sweep_quantity", persist_state="session")]
    least = 0.0 if quantity.decimals else 0
    own = limit_of(report, quantity, None)
    direction = "at least" if quantity.more_is_better else "at most"
    given = st.number_input(
        f"Limit, {direction}, {quantity.unit}",
        min_value=least,
        value=None,
        format=f"%.{quantity.decimals}f" if quantity.decimals else "%d",
        placeholder="no limit" if own is None else f"{amount(quantity, own)}, the plan's target",
        label_visibility="collapsed",
        key=f"sweep_limit_{quantity.path}",
        persist_state="session",
    )
    st.caption(f"limit: {direction} so many {quantity.unit}")
    return quantity, limit_of(report, quantity, given)


def _axis(report: Report, label: str, place: str, fields: list[str], default: str) -> Axis | None:
    """A field and its values; what cannot be read is said, with what is shown in its place."""
    key = f"sweep_{place}"
    _keep(key, fields, default if default in fields else fields[0])
    field = st.selectbox(
        label, fields, format_func=lambda name: TITLES.get(name, name), key=key, persist_state="session"
    )
    if field == NONE:
        return None
    return _values(report, field)


def _values(report: Report, field: str) -> Axis:
    key, first = f"sweep_values_{field}", ready(report, field)
    known = st.session_state.setdefault("sweep_ready", {})
    if st.session_state.get(key) in (None, known.get(field)):
        # Never touched: it follows the plan.
        st.session_state[key] = first
    known[field] = first
    text = st.text_input(
        f"Values of {TITLES[field]}",
        max_chars=1000,
        placeholder=first,
        help=AXIS_HELP,
        label_visibility="collapsed",
        key=key,
        persist_state="session",
    )
    good = st.session_state.setdefault("sweep_good", {})
    try:
        found = axis(report, field, text)
    except ValueError as error:
        found = axis(report, field, good.get(field, first))
        st.caption(f":red[{escape(str(error))}. Shown is still {escape(found.text)}]")
    else:
        good[field] = text
        st.caption(escape(axis_note(report, found)))
    return found


def _place(axis: Axis) -> int:
    key = _cell_key(axis)
    _keep(key, axis.texts, axis.texts[axis.own or 0])
    chosen = st.selectbox(
        TITLES[axis.field],
        axis.texts,
        format_func=lambda text: said(axis, axis.texts.index(text)),
        key=key,
        persist_state="session",
    )
    return axis.texts.index(chosen)


def _cell_key(axis: Axis) -> str:
    return f"sweep_cell_{axis.field}"


def _keep(key: str, options: Iterable, default) -> None:
    """The former choice where it is still offered, else the default."""
    if st.session_state.get(key) not in options:
        st.session_state[key] = default
