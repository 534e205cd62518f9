"""The dashboard: navigation, the sidebar and the link; each page is a file of its own."""

from pathlib import Path

import streamlit as st

from kvplan import catalog, evaluate
from kvplan.dashboard import controls, sidebar

DASHBOARD = Path(sidebar.__file__).parent


def main() -> None:
    # A file of our own: with a symbol as its icon, the browser would ask another host for it.
    st.set_page_config(page_title="kvplan", page_icon=DASHBOARD / "icon.svg", layout="wide")
    st.logo(DASHBOARD / "logo.svg", size="large")
    catalog.refresh()

    page = st.navigation(
        [
            st.Page(
                DASHBOARD / "pages/ceiling.py", title="Ceiling", icon=":material/vertical_align_top:", default=True
            ),
            st.Page(DASHBOARD / "pages/pool.py", title="Pool", icon=":material/stacked_line_chart:"),
            st.Page(DASHBOARD / "pages/batching.py", title="Batching", icon=":material/view_column:"),
            st.Page(DASHBOARD / "pages/paging.py", title="Paging", icon=":material/grid_view:"),
            st.Page(
                DASHBOARD / "pages/engine_log.py",
                title="Engine log",
                icon=":material/receipt_long:",
                url_path="engine-log",
            ),
            st.Page(DASHBOARD / "pages/help.py", title="Help", icon=":material/help:"),
        ],
        position="top",
    )
    plan = sidebar.current_plan()
    report = evaluate(plan)
    st.session_state["report"] = report
    with st.sidebar:
        controls.draw(plan, report)
    page.run()


# The process that works beside the server imports this file too, under another name.
if __name__ == "__main__":
    main()
