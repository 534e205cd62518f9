"""Back to the plans of this session: one change at a time, or to any of the last."""

from __future__ import annotations

import streamlit as st

from kvplan.dashboard import history
from kvplan.dashboard.inputs import VIEW_HELP
from kvplan.markdown import escape
from kvplan.specs import shorten

LONGEST_WORDS = 120
LIST = "history"


def draw() -> None:
    """Undo, redo and the list; all three are always there, so that nothing beside them moves."""
    known = st.session_state["session"].history
    _draw_step("undo", "Undo", known.place, known.place - 1)
    _draw_step("redo", "Redo", known.place + 1, known.place + 1)
    box = st.popover("History", type="tertiary", key=LIST, help=VIEW_HELP["history"], on_change="rerun")
    if box.open:
        with box, st.container(gap="xxsmall"):
            st.caption("Plans of this session, the newest first", help=VIEW_HELP["history"])
            for place, entry in reversed([*enumerate(known.entries)]):
                _draw_entry(entry, place, is_current=place == known.place)


def _draw_step(key: str, label: str, changed: int, place: int) -> None:
    """A step to another place; `changed` is the entry whose change it takes back or makes again."""
    entries = st.session_state["session"].history.entries
    possible = 0 <= place < len(entries)
    words = f"{label}: {_words(entries[changed])}" if possible else VIEW_HELP[f"nothing_to_{key}"]
    st.button(
        "",
        icon=f":material/{key}:",
        type="tertiary",
        key=key,
        disabled=not possible,
        help=words,
        on_click=_go,
        args=(place,),
    )


def _draw_entry(entry: history.Entry, place: int, is_current: bool) -> None:
    st.button(
        f"**{_words(entry)}**" if is_current else _words(entry),
        icon=":material/radio_button_checked:" if is_current else ":material/radio_button_unchecked:",
        type="tertiary",
        key=f"history {place}",
        disabled=is_current,
        help="The plan as it is now." if is_current else "Back to this plan.",
        on_click=_go,
        args=(place,),
    )


def _words(entry: history.Entry) -> str:
    return escape(shorten(entry.words, LONGEST_WORDS))


def _go(place: int) -> None:
    session = st.session_state["session"]
    session.history = history.moved(session.history, place)
    st.session_state["next_plan"] = session.history.current.plan
    st.session_state[LIST] = False
