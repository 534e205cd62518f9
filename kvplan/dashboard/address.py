"""The browser's address: read it, and replace all of it in one step.

Streamlit binds single widgets to single parameters. A ready plan changes many at once, and through the public interface
each would be a step of the browser's history, with half-applied plans to go back to. These few lines use Streamlit's
own query-parameter object instead; a test holds that it still has these methods.
"""

from __future__ import annotations

from urllib.parse import urlencode

import streamlit as st
from streamlit.runtime.scriptrunner import get_script_run_ctx
from streamlit.runtime.state import get_session_state

DOCUMENT = "doc"
"""Which document Help shows: the one parameter that is no part of a plan."""


def query() -> dict[str, list[str]]:
    """Every parameter of a plan's link with all its values."""
    return {name: st.query_params.get_all(name) for name in st.query_params if name != DOCUMENT}


def flat(query: dict[str, list[str]]) -> dict[str, str]:
    """One value for each parameter, the last."""
    return {name: values[-1] for name, values in query.items()}


def is_going_back() -> bool:
    """Whether this run answers the browser's Back or Forward: then the address decides, not the widgets."""
    return bool(getattr(get_script_run_ctx(), "is_history_navigation", False))


def replace(parameters: dict[str, str]) -> None:
    """Make the address exactly these parameters and the document it names, as one step of the history; nothing happens
    where it is so already."""
    with get_session_state().query_params() as params:
        parameters = parameters | {name: value for name, value in params.to_dict().items() if name == DOCUMENT}
        if params.to_dict() == parameters:
            return
        text = urlencode(parameters)
        params.populate_from_query_string(text)
        # A widget that is new on the page takes its first value from here, not from the address it replaced.
        params.set_initial_query_params(text)
        # The two calls above tell the browser nothing; setting and removing one parameter sends it the whole.
        params.set_with_no_forward_msg("_", "1")
        params.remove_param("_")


def switch_page(page: str, parameters: dict[str, str]) -> None:
    """Open another page, by its file, with exactly these parameters."""
    with get_session_state().query_params() as params:
        # Streamlit refuses parameters that widgets are bound to; those of the other page bind to them again.
        for binding in filter(None, map(params.get_binding_for_param, {*params, *parameters})):
            params.unbind_widget(binding.widget_id)
    st.switch_page(page, query_params=parameters)
