"""How long the server takes to run a page again after an input moved, beside an app of one slider and one chart.

    python benchmarks/rerun.py

Both run in this process, without a browser.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

from streamlit.testing.v1 import AppTest
from timing import Row, in_turns, table

ROOT = Path(__file__).parents[1]
PAGES = ("ceiling", "batching", "paging", "throughput", "levers", "pool", "fleet")
CONTEXTS = (4096, 16384)


def bare() -> None:
    """A slider over powers of two, and a chart of as many points as a ceiling curve has."""
    import plotly.graph_objects as go
    import streamlit as st

    context = st.select_slider("context", [2**power for power in range(8, 21)], 8192, key="context")
    points = list(range(200))
    st.plotly_chart(go.Figure(go.Scatter(x=points, y=[context / (1 + point) for point in points])))


def opened(page: str) -> AppTest:
    """The dashboard on one of its pages."""
    app = AppTest.from_file(str(ROOT / "app.py"), default_timeout=120).run()
    return app if page == "ceiling" else app.switch_page(f"kvplan/dashboard/pages/{page}.py").run()


def mover(app: AppTest):
    """A call that moves the context to its next place and runs the page."""
    places = itertools.cycle(CONTEXTS)

    def move() -> None:
        app.select_slider(key="context").set_value(next(places)).run()
        if app.exception:
            raise RuntimeError(app.exception[0].message)

    return move


def rows() -> Iterator[Row]:
    """Milliseconds of one run of the page."""
    alone = mover(AppTest.from_function(bare).run())
    for page in PAGES:
        ours, theirs = in_turns(mover(opened(page)), alone, 8)
        yield Row(f"rerun: {page}", 1000 * ours, "a slider and a chart", 1000 * theirs, "ms")


if __name__ == "__main__":
    print(table(rows()))
