"""The dashboard: navigation, the sidebar and the link; each page is a file of its own."""

from pathlib import Path
from urllib.parse import urlsplit

import streamlit as st

from kvplan import catalog, evaluate
from kvplan.dashboard import controls, failures, frame, sidebar

DASHBOARD = Path(sidebar.__file__).parent
FIRST, COMPARE = "ceiling", "compare"
PAGES = {
    "": (
        (FIRST, "Ceiling", "vertical_align_top"),
        ("pool", "Pool", "stacked_line_chart"),
        ("batching", "Batching", "view_column"),
        ("paging", "Paging", "grid_view"),
        ("throughput", "Throughput", "speed"),
    ),
    "Decide": (
        ("levers", "Levers", "tune"),
        ("fleet", "Fleet", "dns"),
        ("sweep", "Sweep", "grid_on"),
        ("compare", "Compare", "compare"),
    ),
    "Check": (("engine_log", "Engine log", "receipt_long"),),
    "Learn": (("guide", "Guide", "school"), ("help", "Help", "help")),
}
"""Every page by its section: its file, which is also its address, its title and its icon."""


def address(name: str) -> str | None:
    """A page's address is its file's name, words joined by hyphens; the first is at the root."""
    return None if name == FIRST else name.replace("_", "-")


def _page(name: str, title: str, icon: str):
    path = DASHBOARD / f"pages/{name}.py"
    return st.Page(path, title=title, icon=f":material/{icon}:", url_path=address(name), default=name == FIRST)


def _heading(section: str, listed: tuple) -> str:
    """A section of the navigation, whose menu is closed: with the page that is open, where it is one of these."""
    here = urlsplit(st.context.url or "").path.rpartition("/")[2]
    opened = [title for name, title, _ in listed if section and address(name) == here]
    return f"{section}: **{opened[0]}**" if opened else section


def main() -> None:
    # A file of our own, before any page has a symbol as its icon: the browser would ask another host for that.
    st.set_page_config(page_title="kvplan", page_icon=DASHBOARD / "icon.svg", layout="wide")
    st.logo(DASHBOARD / "logo.svg", size="large")
    catalog.refresh()

    pages = {
        _heading(section, listed): [_page(name, title, icon) for name, title, icon in listed]
        for section, listed in PAGES.items()
    }
    page = st.navigation(pages, position="top")
    st.set_page_config(page_title=f"{page.title} · kvplan")
    plan = sidebar.current_plan(comparing=page.url_path == COMPARE)
    report = evaluate(plan)
    st.session_state["report"] = report
    # The page before the sidebar, so that the browser paints its chart without waiting for the controls; a page that
    # fails leaves them there to change the plan with.
    with failures.told(), frame.drawing(page.url_path):
        page.run()
    with st.sidebar:
        controls.draw(plan, report)


# The process that works beside the server imports this file too, under another name.
if __name__ == "__main__":
    with failures.told():
        main()
