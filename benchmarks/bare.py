"""The app beside which a drag in the dashboard is measured: one slider and one chart, five lines of 200 points.

streamlit run benchmarks/bare.py
"""

import numpy as np
import plotly.graph_objects as go
import streamlit as st

st.set_page_config(layout="wide")
context = st.select_slider("Context", [2**power for power in range(8, 21)], 8192, key="context")
batches = np.geomspace(1, 512, 200)
figure = go.Figure([go.Scatter(x=batches, y=2**22 / context / (batches + width)) for width in range(5)])
figure.add_annotation(text=f"at {context:,} tokens", x=256, y=2**21 / context)
figure.update_layout(height=420)
st.plotly_chart(figure, key="chart")
