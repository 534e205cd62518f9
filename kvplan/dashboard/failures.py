"""What a viewer sees where kvplan itself fails: one sentence, with a word to look for in the server's log."""

from __future__ import annotations

import logging
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager

import streamlit as st

LOG = logging.getLogger("kvplan")
SENTENCE = (
    "kvplan failed while it drew this page, and the fault is its own. The plan is safe: the address holds it. Whoever "
    "runs this server finds the cause in its log under **{word}**."
)


@contextmanager
def told() -> Iterator[None]:
    """An error ends the page with a sentence, and stands whole in the log. With KVPLAN_RAISE in the environment, as
    tests have it, it goes its own way."""
    try:
        yield
    except Exception:
        if os.environ.get("KVPLAN_RAISE"):
            raise
        word = secrets.token_hex(4)
        LOG.exception("a page failed: %s", word)
        st.error(SENTENCE.format(word=word), icon=":material/error:")
