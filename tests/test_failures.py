"""Where kvplan itself fails, a viewer sees a sentence, and the log has the rest."""

import logging

import pytest
from streamlit.testing.v1 import AppTest
from test_pages import APP

from kvplan import metrics
from kvplan.dashboard import failures, sidebar

SECRET = "/srv/secret/path"


def fail(*arguments, **named):
    raise RuntimeError(SECRET)


@pytest.fixture
def as_served(monkeypatch):
    """Errors as viewers see them, not as the tests do."""
    monkeypatch.delenv("KVPLAN_RAISE")


@pytest.mark.parametrize(("module", "function"), [(metrics, "ceiling"), (sidebar, "current_plan")])
def test_a_viewer_sees_one_sentence_and_the_log_has_the_cause(module, function, monkeypatch, as_served, caplog):
    monkeypatch.setattr(module, function, fail)
    with caplog.at_level(logging.ERROR, "kvplan"):
        app = AppTest.from_file(APP, default_timeout=30).run()
    assert not app.exception
    (error,) = app.error
    (record,) = [record for record in caplog.records if record.name == "kvplan"]
    word = record.args[0]
    assert error.value == failures.SENTENCE.format(word=word)
    assert SECRET in str(record.exc_info[1])
    assert not any(SECRET in str(node.proto) for node in app._tree if getattr(node, "proto", None))


def test_a_page_that_fails_leaves_the_sidebar_to_change_the_plan_with(monkeypatch, as_served, caplog):
    app = AppTest.from_file(APP, default_timeout=30)
    with monkeypatch.context() as patched:
        patched.setattr(metrics, "ceiling", fail)
        app.run()
        assert app.error
        app.selectbox(key="model").set_value("llama-3.1-70b").run()
    app.run()
    assert not app.error
    assert app.session_state["session"].plan.model == "llama-3.1-70b"


def test_the_page_comes_back_once_nothing_fails_any_more(monkeypatch, as_served, caplog):
    with monkeypatch.context() as patched:
        patched.setattr(metrics, "ceiling", fail)
        app = AppTest.from_file(APP, default_timeout=30).run()
        assert app.error
    app.run()
    assert not app.error
    assert app.metric


def test_the_tests_see_an_error_and_even_then_it_says_nothing_of_itself(monkeypatch):
    monkeypatch.setattr(metrics, "ceiling", fail)
    app = AppTest.from_file(APP, default_timeout=30).run()
    (error,) = app.exception
    assert not app.error
    assert (error.proto.type, SECRET in error.message, list(error.stack_trace)) == ("", False, [])
