"""Seeds, profiles, and the folder of real traces that may or may not be beside the repository."""

import random
from pathlib import Path

import pytest
from hypothesis import settings

settings.register_profile("fast", deadline=None, print_blob=True)
settings.register_profile("long", deadline=None, print_blob=True, max_examples=2000, stateful_step_count=80)


def pytest_addoption(parser):
    parser.addoption("--seed", type=int, default=None, help="replay the random runs of a failed test")
    parser.addoption("--rewrite", action="store_true", help="write the transcripts of tests/scenarios anew")


def pytest_configure(config):
    if config.getoption("hypothesis_profile", None) is None:
        settings.load_profile("fast")


@pytest.fixture
def seed(request):
    """A seed for one test's random runs; printed, so that a failure can be replayed with --seed."""
    given = request.config.getoption("--seed")
    chosen = given if given is not None else random.SystemRandom().randrange(2**32)
    print(f"seed {chosen} (replay with --seed {chosen})")
    return chosen


@pytest.fixture
def dice(seed):
    return random.Random(seed)


@pytest.fixture(scope="session")
def shared_traces():
    folder = Path(__file__).resolve().parents[2] / "shared" / "traces"
    if not folder.is_dir():
        pytest.skip("the real traces are not beside this repository: ../shared/traces")
    return folder
