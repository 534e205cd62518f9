"""Plans as files: every plan comes back, what is good in a damaged file is kept, and the rest is named."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import known_plans

from kvplan import Plan, encode_link, evaluate, load_preset
from kvplan.plan_files import PlanFile, read_plan_file
from kvplan.plan_json import MAX_BYTES, SCHEMA, plan_from_fields, plan_from_json, to_json
from kvplan.version import VERSION

READY = "llama-70b-chat-4xh100"


@given(known_plans())
def test_a_plan_comes_back_out_of_its_file_without_a_word(plan):
    assert plan_from_json(to_json(plan)) == (plan, [])
    assert plan_from_json(to_json(plan).encode()) == (plan, [])
    assert plan_from_fields(json.loads(to_json(plan))) == (plan, [])


@given(known_plans())
def test_a_file_has_schema_version_and_every_field_that_is_set(plan):
    found = json.loads(to_json(plan))
    assert list(found)[:2] == ["schema", "version"]
    assert (found.pop("schema"), found.pop("version")) == (SCHEMA, VERSION)
    assert found == {name: value for name, value in plan.model_dump(mode="json").items() if value is not None}


@given(known_plans())
def test_a_saved_plan_with_limits_is_a_file_of_check(tmp_path_factory, plan):
    path = tmp_path_factory.mktemp("saved") / "plan.json"
    path.write_text(json.dumps(json.loads(to_json(plan)) | {"expect": {"fits": True}}))
    assert read_plan_file(path) == PlanFile(plan, {"fits": True})


def test_a_field_may_be_null_or_auto_where_it_may_be_open():
    assert plan_from_json('{"layers": null, "head_dim": "auto", "tp": 2}') == (Plan(tp=2), [])
    assert plan_from_json('{"tp": null}')[1] == ["tp: Input should be a valid integer, got None"]


def test_a_ready_plan_or_a_link_can_be_the_base():
    eight = load_preset(READY).model_copy(update={"tp": 8})
    assert plan_from_fields({"preset": READY, "tp": 8}) == (eight, [])
    assert plan_from_fields({"link": encode_link(load_preset(READY)), "tp": 8}) == (eight, [])
    assert plan_from_fields({"link": "?tp=4&colour=red"}) == (Plan(tp=4), ["colour: no field of a plan"])
    plan, notes = plan_from_fields({"preset": READY, "link": "?tp=1"})
    assert (plan, notes) == (load_preset(READY), ["link: not read, as preset is the base"])


def test_a_file_of_check_opens_and_what_is_for_check_alone_is_named():
    fields = {"name": "chat", "description": "a", "tp": 2, "expect": {"fits": True}, "hf_config": "config.json"}
    plan, notes = plan_from_fields(fields)
    assert plan == Plan(tp=2)
    assert [note.split(":")[0] for note in notes] == ["expect", "hf_config"]


@pytest.mark.parametrize(
    ("key", "value", "start"),
    [
        ("colour", '"red"', "colour: no field of a plan"),
        ("context", "-1", "context: Input should be greater than or equal to 1, got -1"),
        ("context", "NaN", "context: Input should be a finite number, got nan"),
        ("gpu_memory_gib", "1e999", "gpu_memory_gib: Input should be a finite number"),
        ("gpu_memory_gib", "-Infinity", "gpu_memory_gib: Input should be a finite number"),
        ("context", "true", "context: Input should be a number, got True"),
        ("context", "[" * 300 + "]" * 300, "context: "),
        ("context", '{"a": 1}', "context: "),
        ("model", '"llama-3.1-9b"', "model: no preset named 'llama-3.1-9b'; nearest: llama-3.1-8b"),
        ("model", "5", "model: Input should be a valid string, got 5"),
        ("model", "null", "model: Input should be a valid string, got None"),
        ("gpu", '"\\ud800"', "gpu: no preset named '?'"),
        ("\\ud800", "1", "?: no field of a plan"),
        ("preset", "5", "preset: must be a text, got 5"),
        ("preset", '"nope"', "preset: no preset named 'nope'"),
        ("link", "5", "link: must be a text or a mapping"),
        ("schema", '"kvplan.plan/2"', "schema: must be kvplan.plan/1, got 'kvplan.plan/2'"),
        ("schema", "1", "schema: must be kvplan.plan/1, got 1"),
        ("version", "2", "version: must be a text, got 2"),
    ],
)
def test_a_bad_part_has_one_note_and_the_good_parts_are_kept(key, value, start):
    plan, (note,) = plan_from_json(f'{{"tp": 4, "{key}": {value}, "max_num_seqs": 7}}')
    assert plan == Plan(tp=4, max_num_seqs=7)
    assert note.startswith(start)
    assert len(note.splitlines()) == 1
    assert note.isprintable()


def test_of_a_repeated_key_the_first_counts_and_the_other_is_named():
    plan, notes = plan_from_json('{"tp": 4, "tp": 8}')
    assert (plan, notes) == (Plan(tp=4), ["tp: given more than once, the first counts, dropped 8"])


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "cannot be read as JSON"),
        ("{", "cannot be read as JSON"),
        ("tp = 4", "cannot be read as JSON"),
        ("[1]", r"must be a table of fields, got \[1\]"),
        ("5", "must be a table of fields, got 5"),
        ("null", "must be a table of fields, got None"),
        ('{"tp":' * 100_000, "is nested too deeply"),
        ('{"tp": ' + "9" * 5000 + "}", "cannot be read as JSON, a number has more than 4,300 digits"),
        (b"\xff\xfe{}", "must be UTF-8, got byte 0xff at 0"),
        (b"\x89PNG\r\n\x1a\n\0\0", "must be UTF-8, got byte 0x89 at 0"),
        (b"\0\0\0\0", "cannot be read as JSON"),
        (b" " * (MAX_BYTES + 1), "must be at most 1,048,576 bytes"),
        (" " * (MAX_BYTES + 1), "must be at most 1,048,576 bytes"),
    ],
    ids=lambda value: str(value)[:20],
)
def test_what_is_no_object_is_refused_in_one_line(content, message):
    with pytest.raises(ValueError, match=message) as error:
        plan_from_json(content)
    assert len(str(error.value).splitlines()) == 1
    assert len(str(error.value)) < 300


def test_a_byte_order_mark_is_no_mistake():
    assert plan_from_json(b'\xef\xbb\xbf{"tp": 2}') == (Plan(tp=2), [])
    assert plan_from_json('\ufeff{"tp": 2}') == (Plan(tp=2), [])


NAMES = st.sampled_from([*Plan.model_fields, "schema", "version", "preset", "link", "expect", "name"]) | st.text()
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(), lambda inner: st.lists(inner, max_size=3)
)


@settings(max_examples=200)
@given(st.dictionaries(NAMES, VALUES, max_size=8))
def test_any_object_gives_a_valid_plan_and_notes_of_one_short_line(fields):
    for plan, notes in (plan_from_fields(fields), plan_from_json(json.dumps(fields))):
        assert Plan.model_validate(plan.model_dump()) == plan
        assert evaluate(plan).setting is not None
        assert all(len(note) < 400 and len(note.splitlines()) == 1 for note in notes)


@given(st.binary(max_size=60) | st.text(max_size=60))
def test_any_content_is_a_plan_or_one_line(content):
    plan, line = Plan(), "one line"
    try:
        plan, _ = plan_from_json(content)
    except ValueError as error:
        line = str(error)
    assert len(line.splitlines()) == 1
    assert evaluate(plan).setting is not None


def test_whatever_a_file_holds_is_in_the_plan_or_has_a_note():
    plan, notes = plan_from_fields(dict.fromkeys(Plan.model_fields, "x"))
    named = {note.split(":")[0] for note in notes}
    assert named == Plan.model_fields.keys()
    assert plan == Plan()
