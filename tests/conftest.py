"""What the tests share: data too large to ship, and how long property tests may search."""

from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile(
    "kvplan", deadline=None, max_examples=60, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("kvplan")


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of raw traces and of the engine's own answers, which lies beside the checkout where there is one."""
    folder = Path(__file__).parents[2] / "shared"
    if not folder.is_dir():
        pytest.skip("the raw traces and engine answers are not on this machine")
    return folder
