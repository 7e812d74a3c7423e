"""Workers with another Python than the driver's: said in one sentence before the work, or put right."""

import subprocess
import sys

import pytest

import happened.spark as hs
from happened.core.errors import CausalityError
from happened.spark import session
from happened.spark import session as module
from spark.interpreters import without_the_package

REMEDY = (
    r"before the session starts, set PYSPARK_PYTHON \(or spark\.pyspark\.python\) to a Python 3\.\d+ with"
)

OTHER_VERSION = """
import sys
from collections import namedtuple

Version = namedtuple("Version", "major minor micro releaselevel serial")
sys.version_info = Version(3, 99, 0, "final", 0)
"""


@pytest.fixture
def bare(tmp_path):
    """A Python without any package; each test has its own, for Spark keeps workers of an interpreter."""
    folder = tmp_path / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True, timeout=120)
    return folder


@pytest.fixture
def workers_run(spark, monkeypatch):
    """Let the workers of the session run another interpreter, as if it were a session of the user's."""

    def run(python):
        monkeypatch.setattr(spark.sparkContext, "pythonExec", str(python))
        monkeypatch.setattr(module, "_supplied", set())
        return spark.createDataFrame([("a", 1, "internal")], "process string, seq long, kind string")

    return run


def test_a_python_without_pyarrow_is_named_with_what_to_set(workers_run, bare):
    events = workers_run(bare / "bin" / "python")
    told = rf"workers run {bare}/bin/python\S*, which lacks numba, numpy, pandas and pyarrow; {REMEDY}"
    with pytest.raises(CausalityError, match=told) as caught:
        hs.violations(events)
    assert "\n" not in str(caught.value) and sys.executable in str(caught.value)


def test_a_python_of_another_version(workers_run, bare):
    site = next(bare.glob("lib/python*/site-packages"))
    (site / "sitecustomize.py").write_text(OTHER_VERSION)
    told = rf"workers run Python 3\.99, and this process 3\.\d+; {REMEDY}"
    with pytest.raises(CausalityError, match=told):
        hs.violations(workers_run(bare / "bin" / "python"))


def test_a_python_that_is_not_there(workers_run, tmp_path):
    events = workers_run(tmp_path / "python")
    with pytest.raises(CausalityError, match=rf"there is no program {tmp_path}/python; {REMEDY}"):
        hs.violations(events)


def test_a_python_that_lacks_only_this_package_is_given_it(spark, workers_run, tmp_path, monkeypatch):
    sent = []
    monkeypatch.setattr(module, "_send_package", sent.append)
    module.supply(workers_run(without_the_package(tmp_path / "venv")).sparkSession)
    assert sent == [spark]


def test_nothing_is_asked_where_workers_run_this_python(spark, monkeypatch):
    asked = []
    monkeypatch.setattr(module, "_supplied", set())
    monkeypatch.setattr(module, "check_workers", asked.append)
    assert session.run_this_python(spark)
    module.supply(spark)
    assert not asked
