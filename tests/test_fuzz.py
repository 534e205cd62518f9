"""Any link and any sequence of inputs gives a page: thousands of them, made by chance and the same each time."""

import random
from urllib.parse import parse_qsl

import hostile
import pytest
from test_pages import KINDS, opened
from test_structure import PAGES

from kvplan import Plan, decode_link, evaluate
from kvplan.dashboard import jobs
from kvplan.links import LONGEST_NOTE, MAX_LENGTH, MOST_NOTES, MOST_PARAMETERS

SEED, LINKS, PAGES_OPENED, SESSIONS, ACTIONS = 20_261, 2_000, 100, 22, 5
NAMES = tuple(path.stem for path in PAGES)
QUERIES = hostile.queries(LINKS, SEED)
SHARES = 10
"""Tests among which the links are divided, so that one that fails names few of them."""


@pytest.fixture(autouse=True, scope="module")
def worker_that_ends():
    """Fleet and Pool work beside the server; the process ends with these tests."""
    yield
    jobs.the_worker().executor.shutdown(cancel_futures=True)
    jobs.the_worker.clear()


def parameters(query: str) -> dict[str, list[str]]:
    """A query as the browser's address gives it to the app: each parameter with all its values."""
    found = {}
    for name, value in parse_qsl(query, keep_blank_values=True):
        found.setdefault(name, []).append(value)
    return found


@pytest.mark.parametrize("share", range(SHARES))
def test_any_link_is_a_plan_that_can_be_counted_and_a_few_short_lines(share):
    for query in QUERIES[share::SHARES]:
        for link in (query, parameters(query)):
            plan, notes = decode_link(link)
            assert isinstance(plan, Plan), query
            evaluate(plan)
            assert len(notes) <= MOST_NOTES + 1, query
            assert all(note.isprintable() and len(note) <= LONGEST_NOTE for note in notes), query


def test_the_links_are_of_every_kind():
    notes = [decode_link(query)[1] for query in QUERIES]
    plans = {decode_link(query)[0] for query in QUERIES}
    assert len(plans) > 0.5 * LINKS
    assert sum(not found for found in notes) > 0.05 * LINKS
    assert any("inflates to more" in note for found in notes for note in found)
    assert any(len(query) > MAX_LENGTH for query in QUERIES)
    named = {name for query in QUERIES for name in parameters(query)}
    assert set(Plan.model_fields) | {"v", "made", "r", "preset", "doc", "b.tp"} <= named


def test_of_endless_mistakes_the_first_are_named_and_the_rest_counted():
    plan, notes = decode_link("&".join(f"f{number}=1" for number in range(1_000)) + "&tp=4")
    assert (plan, len(notes), notes[-1]) == (Plan(tp=4), MOST_NOTES + 1, "980 more parts were left out")


def test_of_endless_parameters_the_first_are_read():
    plan, notes = decode_link({"tp": ["4"] * (MOST_PARAMETERS + 1), "pp": "2"})
    assert plan == Plan(tp=4)
    assert notes[0] == "link: more than 1,000 parameters, the others were not read"


@pytest.mark.parametrize("page", NAMES)
def test_any_link_gives_a_page(page):
    queries = QUERIES[:PAGES_OPENED][NAMES.index(page) :: len(NAMES)]
    for query in queries:
        app = opened(parameters(query), page)
        assert app.header, query


@pytest.mark.parametrize("session", range(SESSIONS))
def test_any_sequence_of_inputs_gives_a_page(session):
    chance = random.Random(SEED + session)
    query = chance.choice([query for query in QUERIES if len(query) < MAX_LENGTH])
    page = NAMES[session % len(NAMES)]
    app = opened(parameters(query), page)
    done = []
    for _ in range(ACTIONS):
        widgets = [widget for kind in KINDS for widget in app.get(kind) if can_be_set(widget)]
        for widget in chance.sample(widgets, 2):
            value = beyond(chance, widget)
            done.append((widget.key, value))
            widget.set_value(value)
        app.run()
        assert not app.exception, (query, page, done)
        assert app.header, (query, page, done)


def can_be_set(widget) -> bool:
    """Whether a test can move a widget: it is not disabled, and its options are the values themselves."""
    return not widget.disabled and (widget.type != "selectbox" or widget.value in widget.options)


def beyond(chance: random.Random, widget):
    """A value for a widget: an end, far beyond it, or anything."""
    if widget.type in ("checkbox", "toggle"):
        return chance.random() < 0.5
    if widget.type in ("text_input", "text_area"):
        return chance.choice((*hostile.WORDS, *hostile.NUMBERS, *hostile.LAYERS, hostile.packed_model(chance)))
    if widget.type == "slider":
        return chance.choice((widget.min, widget.max, widget.max * 1000, -1))
    if widget.type == "number_input":
        ends = [end for end in (widget.min, widget.max) if end is not None]
        return chance.choice((*ends, 0, 10**9, -1))
    options = [*widget.options]
    return [chance.choice(options)] if widget.type == "button_group" else chance.choice(options)
