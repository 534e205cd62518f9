"""The app beside which `drag.py --own` measures: one slider and the chart of a page, by its name in the address.

streamlit run benchmarks/one_chart.py, then /?chart=ceiling
"""

import streamlit as st

from kvplan import Plan, charts, evaluate
from kvplan.palette import LIGHT

st.set_page_config(layout="wide")
context = st.select_slider("Context", [2**power for power in range(8, 21)], 8192, key="context")
figure = charts.draw(st.query_params["chart"], evaluate(Plan(context=context)), LIGHT)
st.plotly_chart(figure, theme=None, key="chart", config={"displayModeBar": False})
