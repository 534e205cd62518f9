"""What the tests share: data too large to ship, a browser, and how long property tests may search."""

import os
from functools import partial
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from serving import serving

# An error of the dashboard reaches the tests, in AppTest and in a server; viewers see a sentence instead.
os.environ["KVPLAN_RAISE"] = "1"

settings.register_profile(
    "kvplan", deadline=None, max_examples=60, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("kvplan")


@pytest.fixture(scope="session", autouse=True)
def no_painting():
    """No browser paints the charts of an app that is tested headless."""
    from kvplan.dashboard import frame

    frame.PAINTING_S = 0


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of raw traces and of the engine's own answers, which lies beside the checkout where there is one."""
    folder = Path(__file__).parents[2] / "shared"
    if not folder.is_dir():
        pytest.skip("the raw traces and engine answers are not on this machine")
    return folder


# A module that asks for a browser has imported `browsing` itself, which skips where there is none.


@pytest.fixture(scope="module")
def server():
    """The dashboard on a free port of this machine; yields its address."""
    with serving() as running:
        yield running.address


@pytest.fixture(scope="module")
def browser():
    import browsing

    with browsing.browsing() as browser:
        yield browser


@pytest.fixture
def open_page(server, browser):
    """Opens an address in a fresh browser; at the end nothing may have failed, and no other host been asked."""
    import browsing

    return partial(browsing.opened, server, browser)
