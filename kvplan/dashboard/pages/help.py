"""Help: the documents, one at a time: accuracy, formulas, the engine's rules, limits, terms and the rest."""

from urllib.parse import urlencode

import pandas as pd
import streamlit as st

from kvplan.dashboard import documents, frame
from kvplan.dashboard.address import DOCUMENT
from kvplan.engine_facts import ENGINE_VERSION
from kvplan.links import short_query
from kvplan.version import VERSION

frame.link_notes()
found = documents.documents(documents.FOLDER)
if found:
    # The address opens a document, and the control any other; the address then follows, so that it can be passed on.
    asked = documents.TITLES.get(st.query_params.get(DOCUMENT))
    if asked in found and asked != st.session_state.get("document_shown"):
        st.session_state["document"] = asked
    chosen = frame.choice("Document", found, key="document", help="A page of docs/; the address keeps which.")
    document = found[chosen]
    if asked != chosen and (asked or document.name != documents.FIRST):
        st.query_params[DOCUMENT] = document.name
    st.session_state["document_shown"] = chosen

    st.header(document.title, anchor=False)
    with st.expander("On this page", type="compact", key=f"contents {document.name}"):
        st.markdown(documents.contents(document))
    query = urlencode(short_query(frame.current_report().plan))
    for place, part in enumerate(documents.parts(document, documents.FOLDER, query)):
        if isinstance(part, str):
            st.markdown(part)
        elif part.long:
            frame.long_table(pd.DataFrame(part.rows), key=f"table {document.name} {place}")
        else:
            st.table(part.rows, border="horizontal", hide_index=True, width="content")
else:
    st.info("The documents are not here: they come with the source tree, in docs/.", icon=":material/menu_book:")

st.caption(
    f"kvplan {VERSION}, by the rules of {ENGINE_VERSION}. How to add a model, a GPU or a workload: CONTRIBUTING.md of "
    "the source tree."
)
