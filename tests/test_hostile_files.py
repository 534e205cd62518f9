"""Any file and any paste gives a result or one clear line, in the time of a page."""

import gzip
import io
import json
import zipfile

import pytest
from test_pages import opened, plan_of

from kvplan import Plan, model_from_hf_config, parse_engine_log
from kvplan.cli import main
from kvplan.hf_config import MAX_BYTES
from kvplan.log_comparison import compare
from kvplan.log_text import MAX_LINES, decoded, is_cut, log_lines
from kvplan.trace_formats import MAX_COLUMNS
from kvplan.traces import read_trace, with_trace

DEEP = 100_000
HEADER = b"prompt_tokens,completion_tokens\n"


def zipped(content: bytes) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("config.json", content)
    return stream.getvalue()


FILES = {
    "nothing": b"",
    "blanks": b" \n\t\r\n" * 1000,
    "NUL bytes": b"\0" * 10_000,
    "every byte": bytes(range(256)) * 100,
    "a mark alone": b"\xef\xbb\xbf",
    "half of UTF-16": b"\xff\xfea",
    "lone surrogates": b'{"model_type": "\\ud800", "architectures": ["\\udfff"]}',
    "raw surrogates": '{"model_type": "\ud800"}'.encode("utf-8", "surrogatepass"),
    "deep lists": b"[" * DEEP + b"]" * DEEP,
    "deep objects": b'{"a":' * DEEP + b"1" + b"}" * DEEP,
    "deep without an end": b'{"a":[' * DEEP,
    "5,000 digits": b'{"num_hidden_layers": ' + b"9" * 5_000 + b"}",
    "1e400": b'{"num_hidden_layers": 1e400, "hidden_size": -1e400}',
    "NaN": b'{"num_hidden_layers": NaN, "hidden_size": Infinity}',
    "the same key twice": b'{"num_hidden_layers": 1, "num_hidden_layers": "x"}',
    "a zip bomb": zipped(b"0" * 10**7),
    "a gzip bomb": gzip.compress(b"0" * 10**8),
    "a gzip of a gzip": gzip.compress(gzip.compress(b"0" * 10**6)),
    "half a gzip": gzip.compress(HEADER + b"1,1\n" * 1000)[:-20],
    "formulas": b"=cmd|'/c calc'!A1,+1,@a\n=1,2,3\n",
    "a million columns": HEADER.strip() + b",a" * 10**6 + b"\n1,1\n",
    "a line of 20 MB": b"a" * 20_000_000,
    "a JSON line of 20 MB": b'{"a": "' + b"x" * 20_000_000 + b'"}',
    "100,000 keys": json.dumps({f"a{number}": 1 for number in range(100_000)}).encode(),
    "a quote without an end": HEADER + b'"' + b"a,1\n" * 50_000,
    "line ends": b"\n" * 2_000_000,
    "braces": b'{"log": ' * 100_000,
    "JSON lines": b'{"a": 1}\n' * 150_000,
    "what patterns repeat": b"# GPU blocks: " + b"1," * 200_000 + b"(" * 200_000 + b" " * 200_000,
    "many long numbers": (b"GPU KV cache size: " + b"1" * 20_000 + b" tokens\n") * 100,
    "control characters": b"\x1b[31mINFO\x1b[0m \x1b]0;title\x07 # GPU blocks: 12, \x1b[2J\n",
}


def one_line(error: ValueError) -> bool:
    text = str(error)
    return text.isprintable() and 0 < len(text) <= 1_000


@pytest.mark.parametrize("content", FILES.values(), ids=FILES)
def test_a_config_is_read_or_refused_in_one_line(content):
    with pytest.raises(ValueError, match=r".") as error:
        model_from_hf_config(content)
    assert one_line(error.value)
    assert not any(word in str(error.value) for word in ("recursion", "sys.", "Traceback", "codec"))


@pytest.mark.parametrize("content", FILES.values(), ids=FILES)
def test_a_trace_is_read_or_refused_in_one_line(content):
    with pytest.raises(ValueError, match=r".") as error:
        with_trace(Plan(), read_trace(content, "<b>\x1b[31m.csv"))
    assert one_line(error.value)
    assert not any(word in str(error.value) for word in ("recursion", "sys.", "Traceback", "codec"))


@pytest.mark.parametrize("content", FILES.values(), ids=FILES)
def test_a_log_is_read(content):
    found = compare(parse_engine_log(decoded(content)))
    assert found.log.engine in (None, "vllm")
    assert all(line.isprintable() for line in found.missing)


@pytest.mark.parametrize("key", ["config_file", "trace_file"])
@pytest.mark.parametrize("name", ["NUL bytes", "deep objects", "5,000 digits", "a zip bomb", "nothing", "1e400"])
def test_an_upload_is_one_error_and_changes_nothing(key, name):
    app = opened()
    app.file_uploader(key=key).set_value(("a.json", FILES[name], "application/json")).run()
    if key == "config_file":
        app.button(key="use_config").click().run()
    assert not app.exception
    assert len(app.error) == 1
    assert plan_of(app) == Plan()


@pytest.mark.parametrize(
    "name", ["NUL bytes", "every byte", "deep lists", "what patterns repeat", "control characters"]
)
def test_an_uploaded_log_gives_a_page(name):
    app = opened({}, "engine_log")
    app.file_uploader(key="log_file").set_value(("a.log", FILES[name], "text/plain")).run()
    assert not app.exception
    assert app.header


# Limits


def test_a_config_beyond_the_limit_is_refused_wherever_it_comes_from(tmp_path):
    text = " " * MAX_BYTES + "{}"
    path = tmp_path / "config.json"
    path.write_text(text)
    for given in (text, text.encode(), path):
        with pytest.raises(ValueError, match=r"config: must be at most 1,048,576 bytes"):
            model_from_hf_config(given)
    app = opened()
    # The browser refuses such a file; who goes around it is told here.
    app.file_uploader(key="config_file").set_value(("config.json", text.encode(), "application/json")).run()
    app.button(key="use_config").click().run()
    assert [error.value for error in app.error] == ["config\\: must be at most 1,048,576 bytes"]


@pytest.mark.parametrize("encoding", ["utf-16", "utf-8-sig", "utf-32"])
def test_a_config_of_any_usual_encoding_is_read(encoding, request):
    text = (request.config.rootpath / "docs/samples/config.json").read_text()
    assert model_from_hf_config(text.encode(encoding)) == model_from_hf_config(text)


def test_more_columns_than_any_table_has_are_refused():
    for text in (
        ",".join(f"c{number}" for number in range(MAX_COLUMNS + 2)) + "\n1\n",
        json.dumps({f"c{number}": 1 for number in range(MAX_COLUMNS + 1)}),
    ):
        with pytest.raises(ValueError, match="at most 10,000 columns are told apart"):
            read_trace(text.encode())


def test_more_rows_than_are_asked_for_are_refused():
    rows = HEADER + b"1,1\n" * 11
    assert read_trace(rows, most_rows=11).rows == 11
    with pytest.raises(ValueError, match="at most 10 rows are read, it has more"):
        read_trace(rows, most_rows=10)


def test_text_that_unpacks_without_end_is_refused(monkeypatch):
    monkeypatch.setattr("kvplan.trace_formats.MAX_TEXT", 10**6)
    with pytest.raises(ValueError, match="at most 2 GB of text are read"):
        read_trace(gzip.compress(HEADER + b"1,1\n" * 10**6))


def test_of_a_log_with_too_many_lines_the_end_is_read_by_its_own_numbers():
    last = "GPU KV cache size: 272,784 tokens"
    text = "\n".join(["x"] * (MAX_LINES + 1) + [last])
    log = parse_engine_log(text)
    assert (log.cut, log.kv_cache_tokens, log.lines["kv_cache_tokens"][0]) == (True, 272_784, MAX_LINES + 2)
    assert not is_cut("x\n" * (MAX_LINES - 1))
    assert len(log_lines("x\n" * (3 * MAX_LINES))) <= MAX_LINES


# The command line


@pytest.mark.parametrize("content", FILES.values(), ids=FILES)
@pytest.mark.parametrize("option", ["--hf-config", "--trace"])
def test_a_command_refuses_a_file_in_one_line(option, content, tmp_path, capsys):
    path = tmp_path / "file"
    path.write_bytes(content)
    assert main(["report", option, str(path)]) == 2
    told = capsys.readouterr()
    assert (told.out, len(told.err.splitlines())) == ("", 1)
    assert told.err.startswith(f"kvplan: {option}: ")


@pytest.mark.parametrize("content", FILES.values(), ids=FILES)
@pytest.mark.parametrize("ending", ["json", "toml"])
def test_check_refuses_a_file_in_one_line(ending, content, tmp_path, capsys):
    path = tmp_path / f"plan.{ending}"
    path.write_bytes(content)
    assert main(["check", str(path)]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1
