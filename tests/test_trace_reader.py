"""An uploaded trace in the sidebar: read, shown, taken, and given back."""

from test_pages import opened, plan_of

from kvplan import Plan
from kvplan.traces import plan_fields, read_trace

ROWS = b"timestamp,prompt_tokens,completion_tokens\n0,100,10\n1,200,20\n3,300,-4\n3,400,40\n"


def uploaded(content, name="mine.csv", query=None):
    app = opened(query)
    app.file_uploader(key="trace_file").set_value((name, content, "text/csv")).run()
    assert not app.exception
    return app


def captions(app):
    return [caption.value for caption in app.caption]


def test_an_upload_says_how_it_was_read():
    app = uploaded(ROWS)
    assert any("**3 requests** of 4 rows" in text.value for text in app.markdown)
    shown = " ".join(captions(app)).replace("\\", "")
    assert "means: prompt 233, output 23 tokens" in shown
    assert "1 rows skipped: output below 1" in shown
    assert "prompt from prompt_tokens, output from completion_tokens, arrival from timestamp" in shown
    assert plan_of(app) == Plan()


def test_a_trace_that_is_taken_becomes_the_plan_and_can_be_given_back():
    app = uploaded(ROWS, query={"tp": "2"})
    app.button(key="use_trace").click().run()
    assert not app.exception
    assert plan_of(app) == Plan(tp=2, **plan_fields(read_trace(ROWS)))
    assert any("means: prompt 233, output 23 tokens; 0.67 requests/s" in text for text in captions(app))
    app.button(key="drop_table").click().run()
    assert plan_of(app) == Plan(tp=2)


def test_a_file_that_is_no_trace_is_one_error_and_changes_nothing():
    app = uploaded(b"colour,shape\nred,round\n")
    assert "could not be guessed" in app.error[0].value
    assert plan_of(app) == Plan()


def test_a_column_that_was_guessed_wrong_is_named():
    content = b"when;tokens in;tokens out\n0;100;10\n1;200;20\n"
    app = uploaded(content)
    for role, column in {"prompt": "tokens in", "output": "tokens out", "arrival": "when"}.items():
        app.text_input(key=f"trace_{role}").set_value(column)
    app.run()
    assert not app.exception
    assert any("**2 requests** of 2 rows" in text.value for text in app.markdown)
    app.text_input(key="trace_output").set_value("absent").run()
    assert "absent" in app.error[0].value
