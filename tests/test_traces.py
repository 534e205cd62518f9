"""Files of requests: public traces with their published figures, every format, and files as the wild writes them."""

import csv
import gzip
import io
import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvplan import Plan, decode_link, encode_link, traces
from kvplan.batching import static_utilisation
from kvplan.catalog import resolve
from kvplan.lengths import from_samples, from_table, mean_prompt, resident_mean
from kvplan.texts import table_from_text
from kvplan.trace_formats import GROUPED, Refused, Unusable, lines_of, plain_name, token_count
from kvplan.traces import Trace, plan_fields, read_trace, remarks

LINK_UTILISATION_BOUND, LINK_RESIDENT_BOUND = 0.012, 0.07
"""How far static utilisation, and what a running request holds, may be from the raw requests in a word of a link."""
LONGEST_WORD = 1200
"""Characters of the word that stands for a public trace, at most."""

PUBLISHED = {
    "AzureLLMInferenceTrace_code.csv": "azure_2023_code",
    "AzureLLMInferenceTrace_conv.csv": "azure_2023_conv",
    "mooncake_conversation_trace.jsonl": "mooncake_conversation",
    "mooncake_synthetic_trace.jsonl": "mooncake_synthetic",
}
each_published = pytest.mark.parametrize(("file", "key"), PUBLISHED.items(), ids=PUBLISHED)

AZURE_2023 = """TIMESTAMP,ContextTokens,GeneratedTokens
2023-11-16 18:17:03.9799600,4808,10
2023-11-16 18:17:04.0319601,3180,8
2023-11-16 18:17:05.0000000,110,27
"""
AZURE_2024 = """TIMESTAMP,ContextTokens,GeneratedTokens
2024-05-10 00:00:00.009930+00:00,2162,5
2024-05-10 00:00:00.017335+00:00,2399,6
2024-05-10 00:00:01+00:00,76,15
"""
MOONCAKE = """{"timestamp": 0, "input_length": 6758, "output_length": 500, "hash_ids": [0, 1, 2]}
{"timestamp": 3052, "input_length": 7322, "output_length": 490, "hash_ids": [0, 3]}
"""
BURSTGPT = """Timestamp,Session ID,Elapsed time,Model,Request tokens,Response tokens,Total tokens,Log Type
5,,2.5,ChatGPT,472,18,490,Conversation log
45,,3.5,ChatGPT,1087,230,1317,Conversation log
118,,0.1,GPT-4,417,0,417,API log
118,,9.0,GPT-4,417,276,693,Conversation log
"""
VLLM = {
    "date": "20260101-000000",
    "num_prompts": 3,
    "request_rate": "inf",
    "duration": 9.5,
    "total_input_tokens": 600,
    "input_lens": [100, 200, 300],
    "output_lens": [10, 0, 30],
    "start_times": [5000.5, 5001.0, 5002.5],
    "ttfts": [0.1, 0.0, 0.1],
    "itls": [[0.1] * 9, [], [0.1] * 29],
    "generated_texts": ["a", "", "b"],
    "errors": ["", "Timeout", ""],
}
SHAREGPT = [
    {
        "id": "a",
        "conversations": [
            {"from": "human", "value": "a" * 9},
            {"from": "gpt", "value": "b" * 8},
            {"from": "human", "value": "c" * 3},
            {"from": "gpt", "value": "d"},
        ],
    },
    {"id": "b", "conversations": [{"from": "gpt", "value": "only an answer"}]},
    {"id": "c", "conversations": [{"from": "human", "value": "ü" * 4}, {"from": "gpt", "value": ""}]},
]
PLAIN = "arrival_s,prompt_tokens,output_tokens\n0,10,1\n0.5,20,2\n2,30,3\n"


def read(text, **fields):
    return read_trace(text if isinstance(text, bytes) else text.encode(), **fields)


def requests(trace):
    """(arrival, prompt, output) of every request; the arrival None where there are no times."""
    times = [None] * trace.prompts.size if trace.arrivals_s is None else trace.arrivals_s.tolist()
    return list(zip(times, trace.prompts.tolist(), trace.outputs.tolist(), strict=True))


def lengths(trace):
    return list(zip(trace.prompts.tolist(), trace.outputs.tolist(), strict=True))


def refused(source, name="", **fields):
    """The one line with which a file is refused, and which begins with its name."""
    with pytest.raises(ValueError, match=": ") as caught:
        read_trace(source if isinstance(source, bytes) else source.encode(), name, **fields)
    message = str(caught.value)
    assert message.startswith(f"{name or 'trace'}: ")
    assert len(message.splitlines()) == 1
    assert len(message) < 900
    return message


def check(trace):
    """What holds of any trace, whatever it was read from."""
    assert trace.prompts.dtype == trace.outputs.dtype == np.int64
    assert trace.prompts.shape == trace.outputs.shape
    assert trace.prompts.size >= 1
    assert trace.rows == trace.prompts.size + sum(trace.skipped.values())
    assert len(trace.examples) == min(20, sum(trace.skipped.values()))
    assert trace.prompts.min() >= 0
    assert trace.outputs.min() >= 1
    if trace.arrivals_s is not None:
        assert trace.arrivals_s.shape == trace.prompts.shape
        assert trace.arrivals_s[0] == 0
        assert (np.diff(trace.arrivals_s) >= 0).all()
    if trace.hashes is not None:
        assert len(trace.hashes) == trace.prompts.size
    assert ("arrival" in trace.columns) == (trace.arrivals_s is not None)
    assert all(len(line.splitlines()) == 1 for line in (trace.name, trace.format, *trace.notes))


# Public traces


@each_published
def test_a_public_trace_has_its_published_figures(shared, file, key):
    """workloads.json: requests, means, rate and variation of each raw trace."""
    trace = read_trace(shared / "traces" / file)
    published = json.loads((shared / "facts" / "workloads.json").read_text())[key]
    check(trace)
    assert trace.name == file
    assert trace.format == ("Mooncake" if file.startswith("mooncake") else "Azure LLM inference")
    assert trace.rows == trace.prompts.size == published["requests"]
    assert trace.skipped.get("output below 1", 0) == published["zero_outputs"]
    for lengths_, figures in ((trace.prompts, "prompt_tokens"), (trace.outputs, "output_tokens")):
        assert int(lengths_.sum()) == published[figures]["sum"]
        assert lengths_.mean() == pytest.approx(published[figures]["mean"], rel=1e-12)
        assert lengths_.max() == published[figures]["max"]
    assert trace.arrivals_s[-1] == pytest.approx(published["duration_s"], abs=1e-6)
    assert trace.arrival_rate == pytest.approx(published["mean_rate_rps"], rel=1e-9)
    assert trace.arrival_cv == pytest.approx(published["interarrival"]["cv"], rel=1e-6)
    assert trace.peak_to_mean == pytest.approx(published["per_minute"]["peak_to_mean"], rel=1e-6)
    assert trace.prefix_hit_rate == published.get("prefix", {}).get("infinite_cache_block_hit_rate")
    shared_times = published["requests"] - published["interarrival"]["distinct_timestamps"]
    notes = [note for note in trace.notes if "at the time of the one before" in note]
    assert [note.split()[1] for note in notes] == ([f"{shared_times:,}"] if shared_times else [])


@each_published
def test_a_plan_carries_a_trace_in_a_word_that_stands_for_its_requests(shared, file, key):
    """Utilisation of static batches within 1.2% of the raw requests, what a running request holds within 7%."""
    trace = read_trace(shared / "traces" / file)
    plan = Plan(**plan_fields(trace))
    assert len(plan.table) < LONGEST_WORD
    setting, raw = resolve(plan), from_samples(trace.outputs, trace.prompts)
    assert setting.requests == trace.prompts.size
    assert setting.arrival_rate == pytest.approx(trace.arrival_rate, rel=1e-5)
    assert setting.arrival_cv == pytest.approx(trace.arrival_cv, rel=1e-5)
    batches, contexts = np.array([8, 64, 256]), np.array([256, 1024, 4096, 32_768])
    assert static_utilisation(setting.lengths, batches) == pytest.approx(
        static_utilisation(raw, batches), rel=LINK_UTILISATION_BOUND
    )
    assert resident_mean(setting.lengths, contexts) == pytest.approx(
        resident_mean(raw, contexts), rel=LINK_RESIDENT_BOUND
    )
    assert setting.lengths.mean == pytest.approx(raw.mean, rel=0.005)
    assert decode_link(encode_link(plan)) == (plan, [])


# Every format


def test_azure_2023_counts_ticks_of_100_ns():
    trace = read(AZURE_2023)
    check(trace)
    assert trace.format == "Azure LLM inference"
    assert lengths(trace) == [(4808, 10), (3180, 8), (110, 27)]
    assert trace.arrivals_s.tolist() == pytest.approx([0, 0.0520001, 1.02004], abs=1e-12)
    assert trace.columns == {"prompt": "ContextTokens", "output": "GeneratedTokens", "arrival": "TIMESTAMP"}
    assert trace.notes == ()


def test_azure_2024_has_zones_and_seconds_without_a_fraction():
    trace = read(AZURE_2024)
    assert trace.format == "Azure LLM inference"
    assert lengths(trace) == [(2162, 5), (2399, 6), (76, 15)]
    assert trace.arrivals_s.tolist() == pytest.approx([0, 0.007405, 0.99007], abs=1e-12)


def test_mooncake_has_milliseconds_and_prefix_blocks():
    trace = read(MOONCAKE)
    check(trace)
    assert trace.format == "Mooncake"
    assert requests(trace) == [(0, 6758, 500), (3.052, 7322, 490)]
    assert trace.hashes == ((0, 1, 2), (0, 3))
    assert trace.notes == ("arrival: numbers in timestamp taken as milliseconds",)


def test_prefix_blocks_stay_with_their_requests_when_these_are_sorted_or_skipped():
    rows = [(9, 1, 1, [1]), (5, 2, 0, [2]), (4, 3, 1, "none"), (None, 4, 1, [4]), (1, 5, 1, [5])]
    keys = ("timestamp", "input_length", "output_length", "hash_ids")
    trace = read("".join(json.dumps(dict(zip(keys, row, strict=True))) + "\n" for row in rows))
    check(trace)
    assert trace.prompts.tolist() == [5, 3, 1]
    assert trace.hashes == ((5,), (), (1,))
    assert "hash_ids: 1 requests without a list of whole numbers" in trace.notes


def test_prefix_blocks_are_left_out_where_none_can_be_read_or_there_are_too_many(monkeypatch):
    assert read(MOONCAKE.replace("[", '"').replace("]", '"')).hashes is None
    monkeypatch.setattr(traces, "MAX_HASHES", 4)
    trace = read(MOONCAKE)
    assert trace.hashes is None
    assert "hash_ids: left out, more than 4 prefix blocks" in trace.notes
    assert trace.prompts.size == 2


def test_burstgpt_counts_failures_and_keeps_the_rest():
    trace = read(BURSTGPT)
    check(trace)
    assert trace.format == "BurstGPT"
    assert requests(trace) == [(0, 472, 18), (40, 1087, 230), (113, 417, 276)]
    assert trace.skipped == {"output below 1": 1}
    assert trace.examples == ((4, "output below 1, got '0'"),)
    assert "output: rows with 0 response tokens are failed requests, skipped" in trace.notes


@pytest.mark.parametrize("indent", [None, 2])
def test_the_result_of_a_vllm_benchmark_has_lists_of_lengths(indent):
    trace = read(json.dumps(VLLM, indent=indent))
    check(trace)
    assert trace.format == "vLLM benchmark"
    assert requests(trace) == [(0, 100, 10), (2, 300, 30)]
    assert trace.columns == {"prompt": "input_lens", "output": "output_lens", "arrival": "start_times"}
    assert trace.skipped == {"output below 1": 1}
    assert trace.examples == ((2, "output below 1, got 0"),)


def test_a_document_on_one_line_may_be_longer_than_a_line_of_a_table(monkeypatch):
    monkeypatch.setattr(traces, "MAX_LINE", 40)
    assert lengths(read("\n" + json.dumps(VLLM) + "\n")) == [(100, 10), (300, 30)]
    assert lengths(read(json.dumps(SHAREGPT))) == [(3, 2), (5, 1)]


def test_a_benchmark_result_without_start_times_or_with_short_lists_is_read():
    found = {"input_lens": [1, 2, 3], "output_lens": [4, 5]}
    trace = read(json.dumps(found))
    assert requests(trace) == [(None, 1, 4), (None, 2, 5)]
    assert trace.skipped == {"output missing": 1}


def test_of_several_benchmark_results_the_first_is_read():
    other = VLLM | {"input_lens": [7], "output_lens": [7]}
    trace = read(f"{json.dumps(VLLM)}\n{json.dumps(other)}\n")
    assert trace.prompts.tolist() == [100, 300]
    assert "results: only the first of several in the file is read" in trace.notes


def test_a_benchmark_result_without_details_says_how_to_save_them():
    summary = {key: value for key, value in VLLM.items() if not isinstance(value, list)}
    for indent in (None, 2):
        assert "--save-detailed" in refused(json.dumps(summary, indent=indent))


@pytest.mark.parametrize("text", [json.dumps(SHAREGPT), "\n".join(json.dumps(one) for one in SHAREGPT)])
def test_sharegpt_is_an_estimate_from_characters_with_the_context_so_far(text):
    """Nine characters are three tokens; the second question comes after 9 + 8 characters and has 3: five tokens."""
    trace = read(text)
    check(trace)
    assert trace.format == "ShareGPT"
    assert lengths(trace) == [(3, 2), (5, 1)]
    assert trace.arrivals_s is None
    assert (trace.arrival_rate, trace.arrival_cv) == (None, None)
    assert trace.skipped == {"no question and answer": 1, "output below 1": 1}
    assert "estimate" in trace.notes[0]
    assert set(plan_fields(trace)) == {"table"}


def test_conversations_of_any_shape_are_read_or_skipped():
    turns = [None, 5, {}, {"from": "human"}, {"from": "gpt", "value": 7}, {"from": ["human"]}, {"value": "x"}]
    records = [{"conversations": value} for value in (None, "text", [], {}, turns)] + [None, 7]
    records.append({"conversations": [{"from": "user", "value": "x"}, {"from": "assistant", "value": "y"}]})
    trace = read(json.dumps(records))
    check(trace)
    assert lengths(trace) == [(1, 1)]
    assert trace.rows == 8


def test_json_lines_of_any_object_are_read_by_their_keys():
    text = '{"id": 1, "prompt_tokens": 5, "completion_tokens": 6.0, "created": 1700000000}\n\n'
    text += '{"id": 2, "prompt_tokens": "1,007", "completion_tokens": 8, "created": 1700000001.5}\r\n'
    trace = read(text)
    check(trace)
    assert trace.format == "JSON lines"
    assert requests(trace) == [(0, 5, 6), (1.5, 1007, 8)]
    assert (
        trace.notes[0]
        == "columns: guessed, prompt from prompt_tokens, output from completion_tokens, arrival from created"
    )


def test_keys_are_found_one_object_deep_and_in_rows_that_come_later():
    text = '{"error": "none"}\n{"usage": {"prompt_tokens": 5, "completion_tokens": 6}}\n{"usage": 7}\n{"usage": {}}\n'
    trace = read(text)
    check(trace)
    assert lengths(trace) == [(5, 6)]
    assert trace.columns == {"prompt": "usage.prompt_tokens", "output": "usage.completion_tokens"}
    assert trace.skipped == {"prompt missing": 3}


def test_a_key_with_a_dot_in_it_is_a_key():
    trace = read('{"usage.prompt_tokens": 5, "usage.output_tokens": 6, "a.b": {"x.y": 3}}')
    assert lengths(trace) == [(5, 6)]
    assert lengths(read('{"a.b": {"x.y": 3}, "o": 1}', columns={"prompt": "a.b.x.y", "output": "o"})) == [(3, 1)]


@pytest.mark.parametrize("indent", [None, 1])
def test_a_list_of_objects_is_read_as_json(indent):
    records = [{"input_tokens": 5, "output_tokens": 6, "ts": "2024-01-01T00:00:00Z"}, [], "x", {"input_tokens": 1}]
    trace = read(json.dumps(records, indent=indent))
    check(trace)
    assert trace.format == "JSON"
    assert requests(trace) == [(0, 5, 6)]
    assert trace.skipped == {"no JSON object": 2, "output missing": 1}
    assert trace.examples[0] == (2, "no JSON object, got []")


def test_one_object_is_one_request_however_it_is_written():
    for text in ('{"prompt": 5, "output": 6}', '{\n "prompt": 5,\n "output": 6\n}\n', '{"prompt": 5, "output": 6}\n\n'):
        assert lengths(read(text)) == [(5, 6)]


def test_a_damaged_line_of_json_lines_is_skipped_wherever_it_stands():
    for bad in ('{"prompt": 5, "outp', "[" * 100_000, "nonsense", "5", "null", "\ufffd"):
        trace = read(f'{{"prompt": 5, "output": 6}}\n{bad}\n{{"prompt": 7, "output": 8}}\n')
        check(trace)
        assert lengths(trace) == [(5, 6), (7, 8)]
        assert trace.skipped == {"no JSON object": 1}
        assert trace.examples[0][0] == 2
    assert lengths(read('{"prompt": 5, "outp\n{"prompt": 7, "output": 8}\n')) == [(7, 8)]


# Columns


@pytest.mark.parametrize(
    ("prompt", "output", "arrival"),
    [
        ("prompt_tokens", "completion_tokens", "timestamp"),
        ("input_tokens", "output_tokens", "arrived_at"),
        ("context_tokens", "generated_tokens", "arrival"),
        ("num_prompt_tokens", "num_output_tokens", "time"),
        ("num_prefill_tokens", "num_decode_tokens", "arrived_at"),
        ("Request tokens", "Response tokens", "start_time"),
        ("  PROMPT-TOKENS ", "Completion Tokens", "Created At"),
        ("inputTokens", "outputTokens", "arrivalTime"),
        ("prompt", "output", "arrival_s"),
    ],
)
def test_columns_are_known_by_many_names(prompt, output, arrival):
    trace = read(f"id,{output},note,{arrival},{prompt}\n1,2,x,10,3\n2,4,y,11,5\n")
    check(trace)
    assert requests(trace) == [(0, 3, 2), (1, 5, 4)]
    assert trace.columns == {"prompt": prompt.strip(), "output": output, "arrival": arrival}
    assert (
        trace.notes[0]
        == f"columns: guessed, prompt from {prompt.strip()}, output from {output}, arrival from {arrival}"
    )


def test_the_more_telling_of_two_names_is_taken():
    trace = read("prompt,output,time,prompt_tokens,completion_tokens,timestamp\nhello,world,9,5,6,0\n")
    assert trace.columns == {"prompt": "prompt_tokens", "output": "completion_tokens", "arrival": "timestamp"}


@pytest.mark.parametrize("text", ["a,b,c\n0,5,6\n1,7,8\n", '{"a": 0, "b": 5, "c": 6}\n{"a": 1, "b": 7, "c": 8}\n'])
def test_a_mapping_names_the_columns(text):
    trace = read(text, columns={"prompt": "b", "output": " C", "arrival": "a"})
    check(trace)
    assert requests(trace) == [(0, 5, 6), (1, 7, 8)]
    assert trace.columns == {"prompt": "b", "output": "c", "arrival": "a"}
    assert not any("guessed" in note for note in trace.notes)


def test_a_mapping_replaces_the_guess_and_leaves_the_rest_guessed():
    text = "prompt_tokens,output_tokens,billed,timestamp\n5,6,7,0\n"
    trace = read(text, columns={"output": "billed"})
    assert requests(trace) == [(0, 5, 7)]
    assert trace.notes[0] == "columns: guessed, prompt from prompt_tokens, arrival from timestamp"
    assert read(text, columns={"arrival": ""}).arrivals_s is None


@pytest.mark.parametrize(
    ("columns", "part"),
    [
        ({"prompt": "tokens"}, "prompt must be one there is, got 'tokens'; there are arrival_s, prompt_tokens"),
        ({"arrival": "when"}, "arrival must be one there is, got 'when'"),
        ({"prompts": "prompt_tokens"}, "must be of prompt, output, arrival, got 'prompts'"),
        ({"prompt": ""}, "prompt must be the name of a column, got ''"),
        ({"prompt": 3}, "prompt must be the name of a column, got 3"),
        ({"prompt": "!"}, "prompt must be one there is, got '!'"),
    ],
)
def test_a_wrong_mapping_is_refused_with_the_columns_there_are(columns, part):
    assert part in refused(PLAIN, columns=columns)


def test_a_wrong_mapping_is_refused_in_every_format():
    for text in (AZURE_2023, MOONCAKE, BURSTGPT, json.dumps(VLLM), json.dumps(SHAREGPT)):
        assert "prompt must be one there is, got 'nope'" in refused(text, columns={"prompt": "nope"})


def test_columns_that_cannot_be_guessed_are_listed():
    message = refused("a,b,c\n1,2,3\n", "mine.csv")
    assert message == "mine.csv: columns: prompt and output could not be guessed and must be named; there are a, b, c"
    assert "there are a, prompt_tokens" in refused("a,prompt_tokens\n1,2\n")
    many = refused(",".join(f"column {number}" for number in range(500)) + "\n")
    assert many.endswith("column 19 and 480 more")
    assert "could not be guessed" in refused('{"a": 1}\n{"b": {"c": 2}}\n')


def test_names_are_compared_without_case_signs_and_units():
    assert plain_name("Generated-Tokens") == plain_name("generated tokens") == plain_name("GeneratedTokens")
    assert plain_name("time (ms)") == plain_name("time_us") == "time"
    assert plain_name("ms") == "ms"


# Text as the wild writes it


@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
@pytest.mark.parametrize("ending", ["\n", "\r\n", "\r"])
def test_any_usual_delimiter_and_line_ending_is_told(delimiter, ending):
    trace = read(PLAIN.replace(",", delimiter).replace("\n", ending))
    check(trace)
    assert requests(trace) == [(0, 10, 1), (0.5, 20, 2), (2, 30, 3)]


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "latin-1"])
@pytest.mark.parametrize("packed", [False, True])
def test_any_usual_encoding_is_told_packed_or_not(encoding, packed):
    raw = PLAIN.replace("\n", ",Zürich\n").encode(encoding)
    trace = read_trace(gzip.compress(raw) if packed else raw, columns={"prompt": "prompt_tokens"})
    check(trace)
    assert requests(trace) == [(0, 10, 1), (0.5, 20, 2), (2, 30, 3)]
    assert ("text: neither UTF-8 nor UTF-16, read as Latin-1" in trace.notes) == (encoding == "latin-1")


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16"])
def test_a_byte_order_mark_is_no_part_of_json(encoding):
    assert lengths(read_trace(MOONCAKE.encode(encoding))) == [(6758, 500), (7322, 490)]
    assert lengths(read_trace(json.dumps(VLLM).encode(encoding))) == [(100, 10), (300, 30)]


def test_damaged_bytes_far_into_a_file_do_not_matter():
    raw = ("prompt,output,note\n" + "5,6,x\n" * 30_000).encode() + b"7,8,\xff\xfe\x80\n"
    assert read_trace(raw).prompts.size == 30_001


@pytest.mark.parametrize(
    ("cell", "tokens"),
    [
        ("12", 12), (" 12 ", 12), ('"12"', 12), ("+12", 12), ("12.0", 12), ("1e3", 1000), ('"1,234"', 1234),
        ('"1,234,567"', 1_234_567), ("1 234", 1234), ("1'234", 1234), ("1\u00a0234", 1234), ("1\u202f234", 1234),
        ("1_234", 1234), ("0", 0), ("100000000", 10**8),
    ],
)  # fmt: skip
def test_whole_numbers_are_read_as_people_write_them(cell, tokens):
    assert lengths(read(f"prompt,output\n{cell},1\n")) == [(tokens, 1)]


@pytest.mark.parametrize(
    ("cell", "reason"),
    [
        ("", "missing"), (" ", "missing"), ("abc", "not a whole number"), ("1.5", "not a whole number"),
        ('"12,34"', "not a whole number"), ('"1,2345"', "not a whole number"), ("1.234.567", "not a whole number"),
        ("12 tokens", "not a whole number"), ("0x10", "not a whole number"), ("inf", "infinite or not a number"),
        ("-inf", "infinite or not a number"), ("NaN", "infinite or not a number"), ("-5", "below"),
        ("1000000000", "above 100,000,000 tokens"), ("1e9", "above 100,000,000 tokens"),
        ("100000001", "above 100,000,000 tokens"), ("9" * 5000, "infinite or not a number"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("role", ["prompt", "output"])
def test_a_cell_that_is_no_number_of_tokens_skips_its_row(role, cell, reason):
    row = f"{cell},1" if role == "prompt" else f"1,{cell}"
    trace = read(f"prompt,output\n5,6\n{row}\n7,8\n")
    check(trace)
    assert lengths(trace) == [(5, 6), (7, 8)]
    found = reason + (" 0" if role == "prompt" else " 1") if reason == "below" else reason
    assert trace.skipped == {f"{role} {found}": 1}
    line, example = trace.examples[0]
    assert line == 3
    assert example.startswith(f"{role} {found}")


@pytest.mark.parametrize(
    "value", ["null", "true", "[]", "{}", '"x"', "1.5", "NaN", "Infinity", "-1", "1e400", "9" * 400]
)
def test_a_json_value_that_is_no_number_of_tokens_skips_its_row(value):
    trace = read(f'{{"prompt": 5, "output": 6}}\n{{"prompt": {value}, "output": 6}}\n')
    check(trace)
    assert lengths(trace) == [(5, 6)]
    assert sum(trace.skipped.values()) == 1


def test_rows_with_more_or_fewer_cells_and_blank_lines_are_told_apart():
    trace = read("\n\nprompt,output,timestamp\n5,6,0,extra,more\n7\n\n  \n,,\n8,9,1\n10,11\n")
    check(trace)
    assert requests(trace) == [(0, 5, 6), (1, 8, 9)]
    assert trace.skipped == {"output missing": 1, "unreadable time": 1}
    assert trace.examples == ((5, "output missing"), (10, "unreadable time, got None"))


def test_only_the_first_examples_are_kept_in_the_order_of_the_file():
    rows = "".join(f"5,{number % 2},{'x' if number % 3 else 7}\n" for number in range(90))
    trace = read("prompt,output,time\n" + rows)
    check(trace)
    assert [line for line, _ in trace.examples] == sorted(line for line, _ in trace.examples)
    assert trace.examples[0] == (2, "output below 1, got '0'")
    assert trace.examples[1] == (3, "unreadable time, got 'x'")
    assert trace.skipped == {"output below 1": 45, "unreadable time": 30}


def test_a_quote_that_never_ends_costs_its_rows_and_no_more():
    trace = read('prompt,output,note\n5,6,"open\n' + "7,8,x\n" * 30_000)
    check(trace)
    assert trace.skipped == {"no CSV": 1}
    assert "field larger than field limit" in trace.examples[0][1]
    assert trace.prompts.size > 5_000


# Times


def times(*cells, name="timestamp"):
    rows = "".join(f'"{cell}",{number},1\n' for number, cell in enumerate(cells))
    return read(f"{name},prompt,output\n{rows}")


@pytest.mark.parametrize(
    ("cells", "seconds"),
    [
        (("2024-01-01 00:00:00", "2024-01-01 00:00:01"), 1),
        (("2024-01-01T00:00:00Z", "2024-01-01T00:00:00.5Z"), 0.5),
        (("2024-01-01T00:00:00.123456789", "2024-01-01T00:00:00.123456790"), 1e-9),
        (("2024-01-01T00:00:00,1", "2024-01-01T00:00:00,25"), 0.15),
        (("2024-01-01T00:00:00+01:00", "2024-01-01T00:00:00+00:00"), 3600),
        (("2024-01-01T00:00:00+0130", "2024-01-01T00:00:00 UTC"), 5400),
        (("2024-02-28 23:59:59", "2024-03-01 00:00:00"), 86_401),
        (("1969-12-31 23:59:59", "1970-01-01 00:00:01"), 2),
        (("0", "1.5"), 1.5),
        (("-3", "4"), 7),
        (("1e1", "2e1"), 10),
        (("1700000000", "1700000001.5"), 1.5),
        (("1700000000000", "1700000001500"), 1.5),
        (("1700000000000000", "1700000001500000"), 1.5),
        (("1700000000000000000", "1700000001500000000"), 1.5),
        (("1,700,000,000", "1,700,000,002"), 2),
    ],
)
def test_times_are_dates_or_numbers_since_the_start_or_since_1970(cells, seconds):
    trace = times(*cells)
    check(trace)
    assert trace.arrivals_s.tolist() == pytest.approx([0, seconds], abs=1e-12)
    assert trace.arrival_rate == pytest.approx(1 / seconds)
    dated = "-" in cells[0][1:]
    assert any("taken as" in note for note in trace.notes) == (not dated)


@pytest.mark.parametrize(
    ("name", "seconds"),
    [
        ("timestamp", 500), ("time_s", 500), ("arrival_ms", 0.5), ("arrival_time (ms)", 0.5), ("timestampMs", 0.5),
        ("time_us", 0.0005), ("time [µs]", 0.0005), ("start_time_ns", 5e-7), ("arrival-seconds", 500),
    ],
)  # fmt: skip
def test_the_name_of_a_column_tells_the_unit(name, seconds):
    assert times("1000", "1500", name=name).arrivals_s.tolist() == pytest.approx([0, seconds])


def test_a_comma_is_before_decimals_where_no_comma_parts_the_columns():
    assert read("time;prompt;output\n0,5;1;1\n1,234;2;1\n").arrivals_s.tolist() == pytest.approx([0, 0.734])


def test_times_out_of_order_are_sorted_with_their_rows_and_equal_ones_keep_their_order():
    trace = times(3, 1, 2, 1, 3)
    check(trace)
    assert trace.prompts.tolist() == [1, 3, 2, 0, 4]
    assert trace.arrivals_s.tolist() == [0, 0, 1, 2, 2]
    assert "arrival: times were not in order, sorted" in trace.notes
    assert "arrival: 2 requests came at the time of the one before, kept" in trace.notes


@pytest.mark.parametrize("cell", ["", "soon", "nan", "inf", "1e300", "2024-13-01 00:00:00", "2024-01-01", "12:00:00"])
def test_a_row_without_a_time_is_skipped_only_where_others_have_one(cell):
    trace = times("5", cell, "7")
    check(trace)
    assert trace.prompts.tolist() == [0, 2]
    assert trace.skipped == {"unreadable time": 1}
    assert trace.examples == ((3, f"unreadable time, got {cell!r}"),)
    alone = times(cell, cell)
    check(alone)
    assert alone.prompts.tolist() == [0, 1]
    assert alone.arrivals_s is None
    assert alone.skipped == {}
    assert "arrival: no time in timestamp can be read, left out" in alone.notes


@pytest.mark.parametrize(
    "cells", [("0", "2024-01-01 00:00:00", "2024-01-01 00:00:01"), ("2024-01-01 00:00:00", "0", "1")]
)
def test_of_dates_and_numbers_in_one_column_the_more_frequent_count(cells):
    trace = times(*cells)
    check(trace)
    assert trace.prompts.tolist() == [1, 2]
    assert trace.skipped == {"unreadable time": 1}
    assert trace.examples == ((2, f"unreadable time, got {cells[0]!r}"),)


def test_times_in_json_may_be_anything():
    rows = [1, 2.5, "3", None, True, [], float("nan"), 10**400, "2024-01-01T00:00:00Z"]
    text = "".join(json.dumps({"time": value, "prompt": 1, "output": 1}) + "\n" for value in rows)
    trace = read(text)
    check(trace)
    assert trace.arrivals_s.tolist() == [0, 1.5, 2]
    assert trace.skipped == {"unreadable time": 6}


def test_a_rate_needs_a_span_and_a_variation_two_gaps():
    assert (times(5).arrival_rate, times(5).arrival_cv) == (None, None)
    assert (times(5, 5, 5).arrival_rate, times(5, 5, 5).arrival_cv) == (None, None)
    assert (times(0, 4).arrival_rate, times(0, 4).arrival_cv) == (0.25, None)
    assert times(0, 1, 2, 3).arrival_cv == 0
    assert times(0, 1, 4).arrival_cv == pytest.approx(0.5 * np.sqrt(2))
    tiny = times("0", "0", "5e-324")
    assert (tiny.arrival_rate, tiny.arrival_cv) == (None, None)


@pytest.mark.parametrize(
    ("seconds", "peak"),
    [((0, 59, 60, 119), None), ((0, 10, 70, 121), 2 / 1.5), ((0, 10, 20, 130), 2.0), ((0, 121), 2.0)],
    ids=["one whole minute", "2 and 1", "3 and 0", "1 and 0"],
)
def test_a_peak_is_the_busiest_of_the_whole_minutes(seconds, peak):
    assert times(*seconds).peak_to_mean == peak


def test_hashes_that_came_before_are_hits_of_a_pool_that_forgets_nothing():
    """Five blocks of three requests, three of them different."""
    rows = [{"timestamp": 0, "input_length": 900, "output_length": 1, "hash_ids": ids} for ids in ([1, 2], [1, 3], [2])]
    trace = read("".join(json.dumps(row) + "\n" for row in rows))
    assert trace.prefix_hit_rate == pytest.approx(2 / 5)
    assert plan_fields(trace)["prefix_hit_rate"] == pytest.approx(0.4)
    assert times(0, 1).prefix_hit_rate is None


# What is no trace


@pytest.mark.parametrize(
    ("raw", "part"),
    [
        pytest.param(b"", "it is empty", id="empty"),
        pytest.param(b"\n \r\n\t\n", "it is empty", id="blank"),
        pytest.param(b"\xef\xbb\xbf", "it is empty", id="a mark and nothing"),
        pytest.param(gzip.compress(b""), "it is empty", id="nothing, packed"),
        pytest.param(b"prompt,output\n", "must hold a usable request, got 0 rows", id="header only"),
        pytest.param(b"prompt,output\n1,0\n1,0\nx,1\n", "3 rows: 2 output below 1, 1 prompt", id="no good row"),
        pytest.param(b"5,6\n7,8\n", "could not be guessed", id="no header"),
        pytest.param(b"hello", "could not be guessed", id="a word"),
        pytest.param(b"<html><body>404</body></html>", "could not be guessed", id="a page"),
        pytest.param(bytes(range(256)) * 4, "got no text", id="binary"),
        pytest.param(b"\xff\xfe\xff\xfe\x00", "could not be guessed", id="half UTF-16"),
        pytest.param(PLAIN.encode("utf-16-le"), "got no text", id="UTF-16 without its mark"),
        pytest.param(b"PAR1\x15\x04", "got a Parquet file", id="Parquet"),
        pytest.param(b"PK\x03\x04\x14", "got a ZIP archive or a spreadsheet", id="ZIP"),
        pytest.param(b"\x1f\x8b", "damaged or cut short", id="two bytes of gzip"),
        pytest.param(gzip.compress(PLAIN.encode())[:-12], "damaged or cut short", id="gzip cut short"),
        pytest.param(gzip.compress(PLAIN.encode())[:20] + b"xyz" * 20, "damaged", id="gzip damaged"),
        pytest.param(gzip.compress(PLAIN.encode()) + b"junk", "cannot be read", id="gzip and junk"),
        pytest.param(b"{}", "could not be guessed", id="an empty object"),
        pytest.param(b"[]", "must hold requests as JSON objects, got none", id="an empty list"),
        pytest.param(b"[1, 2]", "must hold requests as JSON objects, got 1", id="a list of numbers"),
        pytest.param(b"[[1, 2]]", "got [1, 2]", id="a list of lists"),
        pytest.param(b'{"name": "model", "layers": [1]}', "could not be guessed", id="another object"),
        pytest.param(b'{"input_lens": 5, "output_lens": [1]}', "could not be guessed", id="lengths that are no list"),
        pytest.param(b'{"input_lens": [], "output_lens": []}', "got 0 rows", id="no lengths"),
        pytest.param(json.dumps(VLLM).encode()[:-9], "must be JSON, ", id="JSON cut short"),
        pytest.param(json.dumps(SHAREGPT).encode()[:-9], "must be JSON, ", id="a list cut short"),
        pytest.param(b"[" * 200_000, "nested too deeply", id="deep lists"),
        pytest.param(b'{"a":' * 200_000, "nested too deeply", id="deep objects"),
        pytest.param(b"[" + b"9" * 5000 + b"]", "must be JSON, ", id="a number of 5,000 digits"),
        pytest.param(b'[{"conversations": 5}]', "got 1 rows: 1 no question and answer", id="no conversation"),
        pytest.param(b'{"a\n', "must be JSON, ", id="half an object"),
    ],
)
def test_what_is_no_trace_is_refused_in_one_line(raw, part):
    assert part in refused(raw, "some file.txt")


def test_the_name_of_a_file_cannot_flood_or_break_a_message():
    with pytest.raises(ValueError, match="must hold requests") as caught:
        read_trace(b"", "x\n" * 500)
    assert len(str(caught.value).splitlines()) == 1
    assert len(str(caught.value)) < 120


def test_lines_and_documents_beyond_the_limits_are_refused(monkeypatch):
    with pytest.raises(Refused, match="a line may have 16,777,216 characters, line 7 has more"):
        list(lines_of(io.StringIO("x" * 2**24 + "x"), 7))
    with pytest.raises(Refused, match="at most 20,000,000 lines"):
        list(lines_of(io.StringIO("x\n" * 9), 20_000_000))
    monkeypatch.setattr(traces, "MAX_DOCUMENT", 100)
    for text in (json.dumps(SHAREGPT), json.dumps(SHAREGPT, indent=1), json.dumps(VLLM, indent=1)):
        assert "a JSON document may have 64 MB; write one line of JSON" in refused(text)


# Where it is read from


def test_bytes_paths_and_streams_give_the_same(tmp_path):
    path = tmp_path / "mine.csv"
    path.write_text(PLAIN)
    with path.open("rb") as stream:
        found = [read_trace(PLAIN.encode()), read_trace(path), read_trace(str(path)), read_trace(stream)]
        assert not stream.closed
    assert [trace.name for trace in found] == ["trace", "mine.csv", "mine.csv", "mine.csv"]
    assert {tuple(requests(trace)) for trace in found} == {((0, 10, 1), (0.5, 20, 2), (2, 30, 3))}
    assert read_trace(path, "yours.csv").name == "yours.csv"


def test_a_stream_is_read_from_where_it_stands_and_left_open():
    stream = io.BytesIO(b"junk" + PLAIN.encode())
    stream.seek(4)
    assert read_trace(stream).prompts.size == 3
    assert not stream.closed


class Pipe(io.RawIOBase):
    """A stream that can only be read, a few bytes at a time."""

    def __init__(self, raw):
        self.rest = raw

    def readable(self):
        return True

    def readinto(self, buffer):
        size = min(7, len(buffer), len(self.rest))
        buffer[:size], self.rest = self.rest[:size], self.rest[size:]
        return size


@pytest.mark.parametrize("packed", [False, True])
def test_a_pipe_is_read_and_its_total_is_unknown(packed):
    raw = gzip.compress(PLAIN.encode()) if packed else PLAIN.encode()
    calls = []
    trace = read_trace(Pipe(raw), progress=lambda *call: calls.append(call))
    assert requests(trace) == [(0, 10, 1), (0.5, 20, 2), (2, 30, 3)]
    assert calls == [(len(raw), 0)]


def test_a_file_that_is_not_there_is_refused_in_one_line(tmp_path):
    for path in (tmp_path / "none.csv", tmp_path, "a\0b", str(tmp_path / "none.csv")):
        with pytest.raises(ValueError, match=": cannot be read, ") as caught:
            read_trace(path)
        assert len(str(caught.value).splitlines()) == 1


# Progress

MANY = "prompt,output\n" + "5,6\n" * 50_000


@pytest.mark.parametrize("packed", [False, True])
def test_progress_is_called_and_ends_at_the_total(packed):
    raw = gzip.compress(MANY.encode()) if packed else MANY.encode()
    calls = []
    assert read_trace(raw, progress=lambda done, total: calls.append((done, total))).prompts.size == 50_000
    assert len(calls) == 3
    assert calls == sorted(calls)
    assert calls[-1] == (len(raw), len(raw))


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(MANY, id="CSV"),
        pytest.param("prompt,output\n" + "5,0\n" * 50_000, id="nothing but bad rows"),
        pytest.param('{"prompt": 5, "output": 6}\n' * 50_000, id="JSON lines"),
        pytest.param(json.dumps({"input_lens": [5] * 50_000, "output_lens": [6] * 50_000}), id="a benchmark"),
    ],
)
def test_progress_can_stop(text):
    calls = []

    def stop(*call):
        calls.append(call)
        return False

    assert refused(text, "long.csv", progress=stop) == "long.csv: stopped"
    assert len(calls) == 1


# As part of a plan


def test_one_request_without_times_has_no_rate():
    fields = plan_fields(read("prompt,output\n0,7\n"))
    assert table_from_text(fields["table"]) == ((1, 7.0, 0.0),)
    assert set(fields) == {"table"}


@given(st.lists(st.tuples(st.integers(0, 10**8), st.integers(1, 10**8)), min_size=1, max_size=300))
def test_a_plan_carries_any_requests_with_their_number_and_means(rows):
    trace = read("prompt,output\n" + "".join(f"{prompt},{output}\n" for prompt, output in rows))
    plan = Plan(**plan_fields(trace))
    carried = table_from_text(plan.table)
    table = from_table(carried)
    assert sum(requests for requests, _, _ in carried) == len(rows)
    assert table.mean == pytest.approx(trace.outputs.mean(), abs=0.5)
    assert mean_prompt(table) == pytest.approx(trace.prompts.mean(), abs=0.5)


def test_a_rate_no_plan_can_have_is_left_out():
    trace = read("time_ns,prompt,output\n1,10,10\n2,10,10\n3,10,10\n")
    assert trace.arrival_rate == pytest.approx(1e9)
    assert set(plan_fields(trace)) == {"table", "arrival_cv"}
    assert Plan(**plan_fields(trace)).arrival_rate is None


def test_times_without_a_span_are_told_from_no_times():
    assert "no times" in remarks(read("prompt,output\n1,1\n2,2\n"))
    assert "no rate, all requests came at once" in remarks(read("time,prompt,output\n5,1,1\n5,2,2\n"))


@pytest.mark.parametrize("time", ["3.9e-05", "1.0e-06", "2.5E-01"])
def test_a_time_with_an_exponent_is_a_number_and_no_date(time):
    trace = read(f"time,prompt,output\n0,1,1\n{time},2,2\n")
    assert (trace.arrivals_s.tolist(), trace.skipped) == ([0.0, float(time)], {})


# Anything at all

arrivals = st.integers(0, 10**6) | st.floats(0, 10**6)
rows = st.lists(st.tuples(arrivals, st.integers(0, 10**8), st.integers(1, 10**8)), min_size=1, max_size=40)
KEYS = ("arrival_s", "prompt_tokens", "output_tokens")


def as_csv(rows, delimiter):
    text = io.StringIO(newline="")
    writer = csv.writer(text, delimiter=delimiter)
    writer.writerows([KEYS, *rows])
    return text.getvalue()


@settings(max_examples=150)
@given(
    rows,
    st.sampled_from([",", ";", "\t", "|", "JSON lines", "JSON"]),
    st.sampled_from(["utf-8", "utf-16"]),
    st.booleans(),
)
def test_any_requests_come_back_as_they_were_written(rows, form, encoding, packed):
    records = [dict(zip(KEYS, row, strict=True)) for row in rows]
    if form == "JSON":
        text = json.dumps(records)
    else:
        text = "\n".join(map(json.dumps, records)) if form == "JSON lines" else as_csv(rows, form)
    raw = text.encode(encoding)
    trace = read_trace(gzip.compress(raw) if packed else raw)
    check(trace)
    ordered = sorted(rows, key=lambda row: row[0])
    assert lengths(trace) == [row[1:] for row in ordered]
    expected = np.array([row[0] for row in ordered], dtype=float)
    assert trace.arrivals_s.tolist() == (expected - expected[0]).tolist()
    assert trace.skipped == {}


WHOLE = [text.encode() for text in (AZURE_2023, AZURE_2024, MOONCAKE, BURSTGPT, PLAIN)]
WHOLE += [json.dumps(found).encode() for found in (VLLM, SHAREGPT)]
names = st.sampled_from([*KEYS, "timestamp", "conversations", "from", "value", "input_lens", "output_lens", "usage"])
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(names, inner, max_size=4),
    max_leaves=20,
)
cells = st.text("0123456789.,;-+eE:T Z\"'\n\r\t|xN\x00ü", max_size=12)
tables = st.lists(st.lists(cells, max_size=5), max_size=8).map(
    lambda rows: "\n".join([",".join(KEYS), *(",".join(row) for row in rows)]).encode()
)


@st.composite
def damaged(draw):
    """A good file with bytes taken out or put in."""
    raw = draw(st.sampled_from(WHOLE))
    start, stop = sorted(draw(st.tuples(*[st.integers(0, len(raw))] * 2)))
    return raw[:start] + draw(st.binary(max_size=6)) + raw[stop:]


anything = st.one_of(
    st.binary(max_size=300),
    st.text(max_size=100).map(lambda text: text.encode("utf-16", errors="replace")),
    tables,
    damaged(),
    json_values.map(lambda value: json.dumps(value).encode()),
    st.lists(json_values, max_size=6).map(lambda found: "\n".join(map(json.dumps, found)).encode()),
)


@settings(max_examples=1500)
@given(anything, st.booleans(), st.none() | st.dictionaries(st.sampled_from(("prompt", "output", "arrival")), names))
def test_any_bytes_are_a_trace_or_are_refused_in_one_line(raw, packed, columns):
    try:
        trace = read_trace(gzip.compress(raw) if packed else raw, columns=columns)
    except ValueError as error:
        message = str(error)
    else:
        assert isinstance(trace, Trace)
        check(trace)
        message = f"trace {sorted(plan_fields(trace))}"
    assert message.startswith("trace")
    assert len(message.splitlines()) == 1
    assert len(message) < 900


@given(st.text(max_size=20) | st.integers() | st.floats() | st.none() | st.booleans(), st.sampled_from((0, 1)))
def test_any_value_is_a_number_of_tokens_or_has_a_reason(value, least):
    try:
        found = token_count(value, least)
    except Unusable as reason:
        found = str(reason)
    if isinstance(found, str):
        assert len(found.splitlines()) == 1
    else:
        assert type(found) is int
        assert least <= found <= 10**8


@given(st.integers(1000, 10**12), st.sampled_from(",' _\u2019\u00a0\u202f"))
def test_a_sign_between_thousands_does_not_change_a_number(number, sign):
    grouped = f"{number:,}".replace(",", sign)
    assert int(grouped.replace(GROUPED.fullmatch(grouped)[1], "")) == number
