"""Links open the exact plan again, keep what is good in a damaged one, and name the rest."""

from urllib.parse import parse_qs, parse_qsl, quote

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import UNKNOWN_IDS, known_plans, plans

from kvplan import Plan, decode_link, encode_link, evaluate, load_preset
from kvplan.links import MAX_COMPARISON, decode_comparison, encode_comparison, others_note
from kvplan.plan import to_text
from kvplan.version import VERSION

ENVELOPE = ("v", "made", "r", "preset")
VALUES = (
    "auto", "", "0", "1", "-1", "4", "4.0", "1e3", "1e999", "nan", "inf", "true", "0x10", "١", "９", " 8 ", "1_000",
    "fp8", "bf16", "llama-3.1-8b", "h200", "seeded-200", "llama-70b-chat-4xh100", "1.2.3",
    "%", "%00", "%ff", "+", "9" * 5000,
)  # fmt: skip


def parameters(link):
    return dict(parse_qsl(link.partition("?")[2], keep_blank_values=True))


def query_like(names, values):
    """Text that looks like a query: known and unknown names, sensible and senseless values, stray separators."""
    pair = st.tuples(names, st.sampled_from(["=", "", "==", "=%"]), values).map("".join)
    start = st.sampled_from(["", "?", "https://example.org/?", "http://[", "//x?", "#"])
    return st.tuples(start, st.lists(pair, max_size=8).map("&".join), st.sampled_from(["", "&", "#top", ";"])).map(
        "".join
    )


FIELDS = [*Plan.model_fields, *ENVELOPE]
NAMES = st.sampled_from(FIELDS + [f"{letter}.{name}" for letter in "bcde" for name in FIELDS]) | st.text(max_size=5)
ANY_CHARACTER = st.characters()
JUNK = st.text(ANY_CHARACTER, max_size=30)
ANY_TEXT = st.one_of(st.text(ANY_CHARACTER), query_like(NAMES, st.sampled_from(VALUES) | JUNK))
PLAIN = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), JUNK, st.sampled_from(VALUES))
ANY_MAPPING = st.dictionaries(NAMES | st.integers(), st.recursive(PLAIN, st.lists, max_leaves=4), max_size=8)


# There and back


@given(known_plans())
def test_a_full_link_opens_the_exact_plan_without_a_word(plan):
    assert decode_link(encode_link(plan)) == (plan, [])


@given(known_plans())
def test_a_short_link_opens_the_exact_plan_without_a_word(plan):
    assert decode_link(encode_link(plan, full=False)) == (plan, [])


@given(known_plans(), st.sampled_from(["", "https://example.org", "http://localhost:8501/paging", "app"]))
def test_the_base_of_a_link_changes_nothing(plan, base):
    link = encode_link(plan, base)
    assert link.startswith(f"{base}?v=1&")
    assert decode_link(link) == (plan, [])


@given(known_plans())
def test_a_parsed_link_opens_the_same_plan(plan):
    query = encode_link(plan).removeprefix("?")
    assert decode_link(query) == (plan, [])
    assert decode_link(dict(parse_qsl(query))) == (plan, [])
    assert decode_link(parse_qs(query)) == (plan, [])


@given(known_plans())
def test_a_link_is_one_line_of_plain_ascii(plan):
    link = encode_link(plan)
    assert link.isascii()
    assert link.isprintable()
    assert " " not in link


@given(known_plans())
def test_a_full_link_carries_format_version_three_results_and_every_field_that_is_not_none(plan):
    report = evaluate(plan)
    results = (report.capacity.batch_ceiling, report.engine.kv_cache_tokens, report.memory.pool_bytes)
    written = {name: text for name, text in to_text(plan).items() if getattr(plan, name) is not None}
    envelope = {"v": "1", "made": VERSION, "r": ".".join(str(result) for result in results)}
    assert parameters(encode_link(plan)) == envelope | written


@given(plans())
def test_a_short_link_carries_only_what_differs_from_the_defaults(plan):
    differing = {name for name, value in plan if value != getattr(Plan(), name)}
    assert parameters(encode_link(plan, full=False)).keys() >= differing
    assert not parameters(encode_link(plan, full=False)).keys() - differing


def test_the_short_link_of_the_defaults_is_just_the_base():
    assert encode_link(Plan(), full=False) == ""
    assert encode_link(Plan(), "https://example.org/", full=False) == "https://example.org/"


def test_equal_plans_have_equal_links():
    assert encode_link(Plan(allocator_overhead_fraction=-0.0), full=False) == encode_link(Plan(), full=False)


def test_a_field_set_to_what_the_model_has_anyway_is_still_written():
    assert encode_link(Plan(layers=32), full=False) == "?layers=32"


def test_an_open_field_against_a_default_survives_a_short_link():
    plan = Plan(kv_dtype="auto", workload="auto", v_dtype="fp8")
    assert decode_link(encode_link(plan, full=False)) == (plan, [])


# Unknown ids


@given(plans())
def test_an_unknown_id_is_dropped_with_a_note_and_the_rest_is_kept(plan):
    decoded, notes = decode_link(encode_link(plan))
    known = {"model": "llama-3.1-8b", "gpu": "h100-sxm", "workload": "azure-conversation"}
    lost = [
        name for name in known if getattr(plan, name) in UNKNOWN_IDS and (name, plan.workload) != ("workload", "auto")
    ]
    assert decoded == plan.model_copy(update={name: known[name] for name in lost})
    assert [note.split(":")[0] for note in notes] == lost


@pytest.mark.parametrize(
    ("field", "value", "nearest"),
    [
        ("model", "llama-3.1-9b", "llama-3.1-8b"),
        ("gpu", "h100", "h100-sxm"),
        ("workload", "azure-conversations", "azure-conversation"),
        ("preset", "llama-70b-chat-4xh200", "llama-70b-chat-4xh100"),
    ],
)
def test_the_note_of_an_unknown_id_names_the_nearest(field, value, nearest):
    plan, (note,) = decode_link({field: value, "tp": "2"})
    assert plan == Plan(tp=2)
    assert note.startswith(f"{field}: ")
    assert value in note
    assert nearest in note


@pytest.mark.parametrize("value", UNKNOWN_IDS)
def test_an_unknown_id_may_hold_any_character(value):
    plan, (note,) = decode_link(encode_link(Plan(model=value, tp=2)))
    assert plan == Plan(tp=2)
    assert note.startswith("model: ")


def test_ids_may_be_percent_encoded_and_any_hugging_face_id_works():
    name = "meta-llama/Llama-3.1-70B-Instruct"
    for written in (name, quote(name), quote(name, safe=""), "".join(f"%{ord(letter):02x}" for letter in name)):
        plan, notes = decode_link(f"?model={written}")
        assert (plan, notes) == (Plan(model=name), [])
        assert evaluate(plan).setting.model.id == "llama-3.1-70b"


# Anything whatsoever


@settings(max_examples=300)
@given(ANY_TEXT)
def test_any_text_decodes_to_a_valid_plan_with_notes_and_evaluates(text):
    plan, notes = decode_link(text)
    assert Plan.model_validate(plan.model_dump()) == plan
    assert evaluate(plan).setting is not None
    assert all(isinstance(note, str) and note.strip() for note in notes)


@settings(max_examples=300)
@given(ANY_MAPPING)
def test_any_mapping_decodes_to_a_valid_plan_with_notes_and_evaluates(mapping):
    plan, notes = decode_link(mapping)
    assert Plan.model_validate(plan.model_dump()) == plan
    assert evaluate(plan).setting is not None
    assert all(isinstance(note, str) and note.strip() for note in notes)


@settings(max_examples=200)
@given(st.dictionaries(st.sampled_from([*Plan.model_fields]), st.sampled_from(VALUES) | JUNK, max_size=8))
def test_every_field_of_a_link_is_in_the_plan_or_has_a_note(fields):
    plan, notes = decode_link(fields)
    named = {note.split(":")[0] for note in notes}
    assert named <= fields.keys()
    assert len(notes) == len(named)
    unchanged = Plan.model_fields.keys() - fields.keys() | named
    assert all(getattr(plan, name) == getattr(Plan(), name) for name in unchanged)


@settings(max_examples=200)
@given(ANY_TEXT)
def test_a_note_is_one_short_line(text):
    for note in decode_link(text)[1]:
        assert len(note) < 400
        assert len(note.splitlines()) == 1


def test_a_note_about_a_name_with_a_line_break_is_one_line_too():
    _, (note,) = decode_link("col%0Aour=red")
    assert len(note.splitlines()) == 1


# What a note is about


@pytest.mark.parametrize(
    ("query", "start", "reason"),
    [
        ("colour=red", "colour: ", "no field of a plan"),
        ("=4", ": ", "no field of a plan"),
        ("context=-1", "context: ", "greater than or equal to 1, got '-1'"),
        ("context=", "context: ", "got ''"),
        ("kv_dtype=fp7", "kv_dtype: ", "got 'fp7'"),
        ("gpu_memory_utilization=nan", "gpu_memory_utilization: ", "got 'nan'"),
        ("block_size=auto&block_size=8", "block_size: ", "more than once"),
        ("v=2", "v: ", "format 2"),
        ("v=0", "v: ", "format 0"),
        ("v=one", "v: ", "whole number, got 'one'"),
        ("v=-1", "v: ", "whole number"),
        ("v=", "v: ", "whole number"),
        pytest.param("v=" + "9" * 5000, "v: ", "format 999", id="v-huge"),
        ("r=1.2", "r: ", "three whole numbers"),
        ("r=", "r: ", "three whole numbers"),
        ("r=1.2.x", "r: ", "three whole numbers"),
        ("r=1.2.-3", "r: ", "three whole numbers"),
        ("r=1.2.3.4", "r: ", "three whole numbers"),
    ],
)
def test_a_bad_part_has_one_note_and_the_good_parts_are_kept(query, start, reason):
    for text in (f"tp=4&{query}&max_num_seqs=7", f"tp=4&max_num_seqs=7&{query}", f"{query}&tp=4&max_num_seqs=7"):
        plan, (note,) = decode_link(text)
        assert plan == Plan(tp=4, max_num_seqs=7)
        assert note.startswith(start)
        assert reason in note


def test_every_bad_part_has_its_own_note():
    plan, notes = decode_link("v=9&colour=red&context=0&gpu=h1000&tp=2&r=x")
    assert plan == Plan(tp=2)
    assert sorted(note.split(":")[0] for note in notes) == ["colour", "context", "gpu", "r", "v"]


def test_of_a_repeated_parameter_the_first_counts_and_the_other_is_named():
    plan, (note,) = decode_link("tp=4&tp=8")
    assert plan == Plan(tp=4)
    assert note.startswith("tp: ")
    assert "'8'" in note


@pytest.mark.parametrize("query", ["v=1", "made=0.0.9", "made=", "r=1.2.3", "r=0.0.0", "v=1&made=9.9&r=1.2.3", ""])
def test_the_links_own_parameters_change_nothing_and_need_no_note(query):
    assert decode_link(f"{query}&tp=4") == (Plan(tp=4), [])


def test_text_too_long_for_a_link_is_refused_with_a_note():
    plan, (note,) = decode_link("tp=4&" + "x=1&" * 10_000)
    assert plan == Plan()
    assert note.startswith("link: ")
    assert "16,384" in note


# Ready plans


def test_a_ready_plan_opens_by_its_name():
    assert decode_link("?preset=llama-70b-chat-4xh100") == (load_preset("llama-70b-chat-4xh100"), [])


def test_explicit_fields_override_a_ready_plan_wherever_they_stand():
    expected = load_preset("llama-70b-chat-4xh100").model_copy(update={"tp": 8, "gpu": "h200"})
    assert decode_link("?preset=llama-70b-chat-4xh100&tp=8&gpu=h200") == (expected, [])
    assert decode_link("?tp=8&gpu=h200&preset=llama-70b-chat-4xh100") == (expected, [])


def test_auto_takes_back_what_a_ready_plan_sets():
    expected = load_preset("llama-8b-chat-l4").model_copy(update={"weight_dtype": None})
    assert decode_link("?preset=llama-8b-chat-l4&weight_dtype=auto") == (expected, [])


def test_a_bad_field_leaves_the_value_of_the_ready_plan():
    plan, notes = decode_link("?preset=llama-70b-chat-4xh100&tp=0&model=no-such-thing")
    assert plan == load_preset("llama-70b-chat-4xh100")
    assert [note.split(":")[0] for note in notes] == ["model", "tp"]


# Ways to write a link


@pytest.mark.parametrize(
    "link",
    [
        "tp=4&context=32768",
        "?tp=4&context=32768",
        "  ?tp=4&context=32768\n",
        "https://example.org/?tp=4&context=32768",
        "https://example.org/paging?tp=4&context=32768#chart",
        "http://127.0.0.1:8501/?tp=4&context=32768",
        "HTTPS://EXAMPLE.ORG?tp=4&context=32768",
        "example.org/paging?tp=4&context=32768",
        "?t%70=%34&context=3276%38",
        "?tp=4&&context=32768&",
        {"tp": "4", "context": "32768"},
        {"tp": 4, "context": 32768},
        {"tp": ["4"], "context": ["32768"]},
        {"tp": ("4",), "context": [32768], "layers": None, "gpu": []},
    ],
)
def test_a_link_may_be_a_url_a_query_or_a_mapping(link):
    assert decode_link(link) == (Plan(tp=4, context=32768), [])


@pytest.mark.parametrize(
    "link",
    [
        "",
        "?",
        "#",
        "https://example.org",
        "https://example.org/paging",
        "http://example.org/a=b#x?tp=4",
        {},
        {"tp": []},
    ],
)
def test_a_link_without_a_query_is_the_default_plan(link):
    assert decode_link(link) == (Plan(), [])


def test_a_fragment_is_no_part_of_the_plan():
    assert decode_link("https://example.org/?tp=4#context=32768") == (Plan(tp=4), [])
    assert decode_link("tp=4#&context=32768") == (Plan(tp=4), [])


def test_a_list_in_a_mapping_is_a_repeated_parameter():
    plan, (note,) = decode_link({"tp": ["4", "8"]})
    assert plan == Plan(tp=4)
    assert note.startswith("tp: ")


@pytest.mark.parametrize("value", [pytest.param(10**5000, id="huge"), b"4", {}, object])
def test_an_odd_value_in_a_mapping_is_noted(value):
    plan, (note,) = decode_link({"tp": value, "context": 32768})
    assert plan == Plan(context=32768)
    assert note.startswith("tp: ")


# Several plans on one link


@given(st.lists(known_plans(), min_size=1, max_size=4), st.booleans())
def test_a_link_of_several_plans_opens_each_of_them_exactly(some, full):
    assert decode_comparison(encode_comparison(some, full=full)) == (some, [])


@given(known_plans(), known_plans())
def test_the_first_plan_of_several_is_written_as_alone(first, other):
    link = encode_comparison([first, other])
    assert link.startswith(encode_link(first))
    assert decode_link(link) == (first, [others_note(1)])


def test_the_others_are_written_as_their_differences():
    plan = Plan(model="llama-3.1-70b", tp=4, layers=40)
    others = [plan.model_copy(update=change) for change in ({"tp": 8}, {"layers": None, "kv_dtype": "fp8"}, {})]
    assert encode_comparison([plan, *others], full=False) == (
        "?model=llama-3.1-70b&layers=40&tp=4&b.tp=8&c.layers=auto&c.kv_dtype=fp8&d.model=llama-3.1-70b"
    )


def test_a_link_of_several_small_plans_is_far_below_what_mail_passes_on():
    plan = Plan(model="llama-3.1-70b", tp=4, context=32768)
    some = [plan.model_copy(update={"tp": tp, "kv_dtype": "fp8"}) for tp in (1, 2, 4, 8)]
    assert len(encode_comparison(some, "http://localhost:8501/compare")) < MAX_COMPARISON / 4


@pytest.mark.parametrize("number", [0, 5])
def test_a_link_has_one_to_four_plans(number):
    with pytest.raises(ValueError, match=f"plans: must be 1 to 4, got {number}"):
        encode_comparison([Plan()] * number)


def test_a_plan_beside_the_first_may_start_from_a_ready_plan():
    plans, notes = decode_comparison("?tp=2&b.preset=llama-70b-chat-4xh100&b.context=16384")
    assert plans == [Plan(tp=2), load_preset("llama-70b-chat-4xh100", "plan").model_copy(update={"context": 16384})]
    assert notes == []


def test_what_is_wrong_with_one_of_several_is_named_by_its_letter_and_the_rest_opens():
    plans, notes = decode_comparison("?tp=4&colour=red&b.tp=8&b.context=-1&c.model=lama-3.1-8b&c.x=1&e.tp=2&b=1&.tp=1")
    assert plans == [Plan(tp=4), Plan(tp=8), Plan(tp=4)]
    assert [note.partition(":")[0] for note in notes] == [
        "colour", "e.tp", "b", ".tp", "b.context", "c.model", "c.x",
    ]  # fmt: skip


def test_a_letter_may_be_left_out():
    assert decode_comparison("?tp=4&d.tp=8") == ([Plan(tp=4), Plan(tp=8)], [])


@given(ANY_TEXT | ANY_MAPPING)
def test_anything_decodes_to_one_to_four_plans(link):
    plans, notes = decode_comparison(link)
    assert 1 <= len(plans) <= 4
    assert all(evaluate(plan).plan == plan for plan in plans)
    assert all("\n" not in note for note in notes)
