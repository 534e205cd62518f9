"""The plans of a session as a list: what becomes an entry, what joins one, and where undo leads."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvplan import Plan, load_preset
from kvplan.dashboard.history import MOST, followed, moved, started

READY = load_preset("llama-405b-8xh200")
ANY_PLAN = st.builds(Plan, tp=st.sampled_from([1, 2, 4]), context=st.sampled_from([1024, 2048]), layers=st.none())


def after(*plans):
    history = started(plans[0])
    for plan in plans[1:]:
        history = followed(history, plan)
    return history


def words(history):
    return [entry.words for entry in history.entries]


def test_a_session_begins_with_the_plan_that_was_opened():
    history = started(Plan(tp=2))
    assert (words(history), history.place, history.current.plan) == (["as it was opened"], 0, Plan(tp=2))


def test_a_run_that_changes_nothing_adds_nothing():
    assert after(Plan(), Plan(), Plan()) == started(Plan())


def test_each_change_is_an_entry_in_words():
    history = after(Plan(), Plan(tp=4), Plan(tp=4, context=16384), READY)
    assert words(history)[:3] == ["as it was opened", "tp 1 → 4", "context 8192 → 16384"]
    assert "gpu h100-sxm → h200" in words(history)[3]
    assert history.place == 3


def test_a_slider_that_is_dragged_is_one_entry_from_where_it_began():
    history = after(Plan(tp=2), *(Plan(tp=2, layers=layers) for layers in range(33, 60)))
    assert words(history) == ["as it was opened", "layers auto → 59"]
    assert after(Plan(tp=2), Plan(tp=2, layers=33), Plan(tp=2, layers=34), Plan(tp=4, layers=34)).place == 2


def test_a_change_of_another_field_in_between_keeps_entries_apart():
    history = after(Plan(), Plan(tp=2), Plan(tp=2, context=4096), Plan(tp=4, context=4096))
    assert words(history)[1:] == ["tp 1 → 2", "context 8192 → 4096", "tp 2 → 4"]


def test_changes_of_several_fields_at_once_never_join():
    other = Plan(tp=8, context=1024)
    assert len(after(Plan(), READY, other).entries) == 3
    assert len(after(Plan(), Plan(tp=2), Plan(tp=4, context=1024)).entries) == 3


def test_the_first_plan_of_a_session_is_never_replaced():
    assert after(Plan(tp=2), Plan(tp=4), Plan(tp=8)).entries[0].plan == Plan(tp=2)


def test_a_slider_moved_back_to_where_it_began_is_a_step_back():
    history = after(Plan(), Plan(tp=2), Plan())
    assert (history.place, len(history.entries)) == (0, 2)


def test_undo_and_redo_are_steps_of_the_same_list():
    history = after(Plan(), Plan(tp=2), Plan(tp=2, context=1024))
    back = moved(history, 1)
    assert back.current.plan == Plan(tp=2)
    assert followed(back, Plan(tp=2)) == back
    assert followed(back, Plan(tp=2, context=1024)) == history
    assert followed(back, Plan()) == moved(history, 0)


def test_a_change_after_undo_takes_the_place_of_what_was_undone():
    history = followed(moved(after(Plan(), Plan(tp=2), Plan(tp=2, context=1024)), 1), Plan(tp=2, context=2048))
    assert words(history)[1:] == ["tp 1 → 2", "context 8192 → 2048"]
    assert history.place == 2


def test_a_change_after_undo_does_not_join_the_entry_that_was_gone_back_to():
    history = followed(moved(after(Plan(), Plan(tp=2), Plan(tp=2, context=1024)), 1), Plan(tp=4))
    assert [entry.plan for entry in history.entries] == [Plan(), Plan(tp=2), Plan(tp=4)]


def test_the_browsers_back_and_forward_are_steps_too():
    history = after(Plan(), READY)
    back = followed(history, Plan())
    assert (back.place, back.entries) == (0, history.entries)
    assert followed(back, READY) == history


def test_only_the_last_are_kept():
    plans = [Plan(tp=2 if number % 2 else 1, context=1000 + number // 2) for number in range(3 * MOST)]
    history = after(*plans)
    assert [entry.plan for entry in history.entries] == plans[-MOST:]
    assert history.place == MOST - 1


@given(st.lists(ANY_PLAN, min_size=1, max_size=60))
def test_the_current_entry_is_always_the_plan_and_neighbours_differ(plans):
    history = started(plans[0])
    for plan in plans:
        history = followed(history, plan)
        assert history.current.plan == plan
        assert 1 <= len(history.entries) <= MOST
        assert all(one.plan != other.plan for one, other in zip(history.entries, history.entries[1:], strict=False))


@pytest.mark.parametrize("place", [0, 1, 2])
def test_any_entry_can_be_gone_to(place):
    plans = (Plan(), Plan(tp=2), READY)
    assert moved(after(*plans), place).current.plan == plans[place]
