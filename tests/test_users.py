"""Several users at once, by Streamlit's own protocol: every move has its reply, and each user their own figures."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from urllib.request import urlopen

import pandas as pd
import pytest
from answered import Move, answers
from figures_shown import OF_PAGE
from load import User, moved, opened, phase
from serving import serving
from stream import Reply, tab

from kvplan import Plan, evaluate, metrics
from kvplan.curves import ceiling_table
from kvplan.dashboard import frame

MOVES = 3
LONGEST_REPLY_S = 60
PLAN, OTHER = Plan(), Plan(tp=4)


@pytest.fixture(scope="module")
def address():
    """Of a dashboard under a path of its own, as behind a proxy that serves others as well."""
    with serving("--server.baseUrlPath", "kvplan") as server:
        yield server.address


async def each_moves(address: str, number: int) -> list[User]:
    """Users who open their pages, and in turns move and wait for the reply."""
    async with AsyncExitStack() as stack:
        users = await opened(stack, address, number)
        for _ in range(MOVES):
            for user in users:
                await user.move()
                assert await user.has_come(LONGEST_REPLY_S)
    return users


def test_every_move_has_its_reply_and_each_user_their_own_figures(address):
    for user in asyncio.run(each_moves(address, 2)):
        found = user.answers
        assert (len(found.seconds), found.overtaken, found.wrong) == (1 + MOVES, 0, [])
        assert None not in found.seconds
        assert len({move.plan for move in user.moves}) > 1


@asynccontextmanager
async def visiting(address: str, page: str) -> AsyncIterator[User]:
    """A user on a page that has opened."""
    async with tab(address, page) as connected:
        user = User(connected, OTHER, seed=0)
        await user.open()
        yield user


@pytest.mark.parametrize("page", OF_PAGE)
def test_a_page_opens_with_the_figures_it_is_held_against(address, page):
    async def opens() -> User:
        async with visiting(address, page) as user:
            return user

    user = asyncio.run(opens())
    assert user.answers.wrong == []
    assert None not in user.answers.seconds
    assert user.replies[0].charts


def test_a_table_is_there_at_its_own_address(address):
    async def loads_down() -> bytes:
        async with visiting(address, "") as user:
            (table,) = user.replies[0].downloads
            with urlopen(f"{address}/{table.lstrip('/')}") as answer:
                return answer.read()

    assert asyncio.run(loads_down()).decode() == frame.csv_text(pd.DataFrame(ceiling_table(evaluate(OTHER))))


@pytest.mark.parametrize("page", OF_PAGE)
def test_the_chart_of_a_page_that_is_shown_is_sent_before_its_figures_and_the_sidebar(address, page):
    async def moves_once() -> list[Reply]:
        async with visiting(address, page) as user:
            await user.move()
            await user.has_come(LONGEST_REPLY_S)
        return user.replies

    first, moved = asyncio.run(moves_once())
    # At first the figures: they stand above the chart, and would push it down.
    assert first.kinds.index("metric") < first.kinds.index("plotly_chart") < first.kinds.index("slider")
    assert moved.kinds.index("plotly_chart") < moved.kinds.index("metric")


def test_users_who_do_not_wait_are_answered_as_well(address):
    async def move_at_once() -> tuple:
        async with AsyncExitStack() as stack:
            users = await opened(stack, address, 2)
            span = await moved(users, seconds=1, gap_s=0.05)
            return [(user, await user.settle()) for user in users], span

    found, span = asyncio.run(move_at_once())
    load = phase(found, [span])
    assert load.offered > 10
    assert (load.lost, len(load.milliseconds)) == (0, load.offered)
    assert all(answered.wrong == [] for _, answered in found)


# Which reply answers which move


def shown(plan, at_s, charts=1, errors=()):
    figures = [(metric.label, metric.value) for metric in metrics.ceiling(evaluate(plan))]
    return Reply(metrics=figures, charts=charts, errors=[*errors], at_s=at_s)


def asked(*plans):
    """One move a second, from 0 on, on the first page."""
    return [Move(float(at_s), "", plan) for at_s, plan in enumerate(plans)]


def test_a_reply_answers_the_newest_move_whose_figures_it_shows_and_those_before():
    found = answers(asked(PLAN, OTHER, PLAN), [shown(PLAN, 0.5), shown(PLAN, 2.25)])
    assert found.seconds == [0.5, 1.25, 0.25]
    assert (found.overtaken, found.wrong) == (1, [])


def test_a_reply_that_was_on_its_way_is_not_taken_for_that_to_the_next_move():
    found = answers(asked(PLAN, OTHER), [shown(PLAN, 1.5), shown(OTHER, 3.0)])
    assert found.seconds == [1.5, 2.0]
    assert found.wrong == []


def test_a_move_without_a_reply_is_lost():
    assert answers(asked(PLAN, OTHER), [shown(PLAN, 0.5)]).seconds == [0.5, None]


def test_figures_of_another_plan_an_error_and_a_missing_chart_are_told():
    assert "tp" in answers(asked(OTHER), [shown(PLAN, 0.5)]).wrong[0]
    assert "ValueError" in answers(asked(PLAN), [shown(PLAN, 0.5, errors=["ValueError: x"])]).wrong[0]
    assert "0 charts" in answers(asked(PLAN), [shown(PLAN, 0.5, charts=0)]).wrong[0]
