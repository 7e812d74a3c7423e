"""Seeds, profiles, the one Spark session, and real traces that may or may not be beside the repository."""

import os
import random
import signal
from pathlib import Path

import pytest
from hypothesis import settings

from effort import some
from times import Times

pytest.register_assert_rewrite("contract", "oracles")  # so that a failed check says what it saw

settings.register_profile("fast", deadline=None, print_blob=True)
settings.register_profile("long", deadline=None, print_blob=True, max_examples=2000, stateful_step_count=80)


def pytest_addoption(parser):
    parser.addoption("--seed", type=int, default=None, help="replay the random runs of a failed test")
    parser.addoption("--rewrite", action="store_true", help="write the transcripts of tests/scenarios anew")
    parser.addoption("--times", action="store_true", help="print what the tests cost, by room")


SPARK_SETTINGS = Path(__file__).parent / "spark" / "conf"


def pytest_configure(config):
    if (
        signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    ):  # as in jobs in the background: children would inherit it
        signal.signal(signal.SIGINT, signal.default_int_handler)
    os.environ.setdefault("SPARK_CONF_DIR", str(SPARK_SETTINGS))  # inherited by the commands that tests start
    if config.getoption("--times"):
        config.pluginmanager.register(Times())
    if config.getoption("hypothesis_profile", None) is None:
        settings.load_profile("fast")


ON_SPARK = (
    "spark/",
    "shared/test_real_frames.py",
    "shared/test_real_traces_on_spark.py",
    "golden/test_golden_tables.py",
)
"""Tests on Spark, by how their paths below tests/ begin."""


COMPILED = tuple(f"tests/{room}/" for room in ("ask", "causality", "cli", "experiments", "report", "view"))
"""Tests on the kernels come last: by then the worker that has Spark has compiled them, and left the code."""


def pytest_collection_modifyitems(items):
    items.sort(key=lambda item: item.nodeid.startswith(COMPILED))
    for item in items:
        if "spark" in item.fixturenames and not item.nodeid.removeprefix("tests/").startswith(ON_SPARK):
            raise pytest.UsageError(f"{item.nodeid} uses Spark: name its file in ON_SPARK, tests/conftest.py")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """All tests on Spark run in one worker: a second JVM would be started and warmed up for nothing, and
    would take the processors from the first. They come first; the others are dealt out one by one."""
    from xdist.scheduler import LoadScopeScheduling

    class SparkTogether(LoadScopeScheduling):
        def _split_scope(self, nodeid):
            return "on Spark" if nodeid.removeprefix("tests/").startswith(ON_SPARK) else nodeid

    return SparkTogether(config, log)


@pytest.fixture(scope="session")
def spark():
    """One session per run: starting the JVM costs more than most tests.

    The kernels are compiled before, in this process, so that its Python workers find their code on disk
    instead of compiling them side by side.
    """
    from causality import traces
    from happened.causality.analysis import analyse
    from happened.spark.session import session

    rows = traces.wild(random.Random(1))
    analyse(traces.table([row | {"time": row["seq"]} for row in rows]))
    spark = session("local[2]")
    yield spark
    spark.stop()


@pytest.fixture
def setting(spark):
    """Sets an option of the session for one test; `conf.unset` would forget what the session began with."""
    before = {}

    def to(name, value):
        before.setdefault(name, spark.conf.get(name))
        spark.conf.set(name, value)

    yield to
    for name, value in before.items():
        spark.conf.set(name, value)


@pytest.fixture
def command(spark, monkeypatch):
    """`happened` within this process, on the session that is there: the command does not stop it."""
    from happened.cli import main

    monkeypatch.setattr(type(spark), "stop", lambda self: None)
    return main


def _chosen(config):
    given = config.getoption("--seed")
    return given if given is not None else random.SystemRandom().randrange(2**32)


def _shown(seed):
    print(f"seed {seed} (replay with --seed {seed})")
    return seed


@pytest.fixture
def seed(request):
    """A seed for one test's random runs; printed, so that a failure can be replayed with --seed."""
    return _shown(_chosen(request.config))


@pytest.fixture(scope="module")
def module_seed(request):
    """A seed for what the tests of a module share; it is shown where `seed` is, with the first of them."""
    return _shown(_chosen(request.config))


@pytest.fixture
def some_programs(monkeypatch):
    """`explore` explores only `some` programs."""
    from happened.sim import explore
    from happened.sim.programs import programs

    monkeypatch.setattr(explore, "programs", lambda *size, **kinds: some(programs(*size, **kinds)))


@pytest.fixture
def dice(seed):
    return random.Random(seed)


@pytest.fixture(scope="session")
def store(tmp_path_factory):
    """A real S3 server on loopback, for the session."""
    from object_store import object_store

    with object_store(tmp_path_factory.mktemp("object-store") / "store") as running:
        yield running


@pytest.fixture
def bucket(store, monkeypatch, request):
    """A URL of the test's own in the store, with the environment that reaches it."""
    from object_store import BUCKET

    for name, value in store.environment.items():
        monkeypatch.setenv(name, value)
    name = "".join(letter if letter.isalnum() else "-" for letter in request.node.name)
    return f"s3://{BUCKET}/{name}-{os.urandom(4).hex()}"


@pytest.fixture(scope="session")
def shared_traces():
    folder = Path(__file__).resolve().parents[2] / "shared" / "traces"
    if not folder.is_dir():
        pytest.skip("the real traces are not beside this repository: ../shared/traces")
    return folder


@pytest.fixture(scope="session")
def chromium():
    """One browser for all who look at pages: Playwright runs once in a process."""
    from view.chromium import launched  # which needs Playwright

    with launched() as browser:
        if browser is None:
            pytest.skip("no Chromium was found, so no page was opened; `make test` installs it where it may")
        yield browser
