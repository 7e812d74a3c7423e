"""The built wheel under spark-submit, in an environment that has the dependencies but not the package.

Neither the driver nor the workers can have it from anywhere but the wheel; both are asked.
"""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pyspark
import pytest

from happened.causality.analysis import TABLES, analyse
from happened.cli import main
from happened.trace import read
from spark.interpreters import without_the_package

pytestmark = pytest.mark.slow

REPOSITORY = Path(__file__).parents[2]

SETTINGS = ["--master", "local[2]", "--conf", "spark.sql.shuffle.partitions=13"]

DRIVER = """
import sys
from happened.cli import main

sys.exit(main(sys.argv[1:]))
"""

WITNESS = """
import json
import happened
from happened.spark.session import session
from happened.spark.tasks import on_tasks

def where(number):
    import happened.causality
    return happened.__file__

spark = session()
settings = [spark.sparkContext.master, spark.conf.get("spark.sql.shuffle.partitions")]
print(json.dumps([*settings, happened.__file__, *on_tasks(spark, 4, where)]))
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """Built from a copy, so that nothing is left beside the sources."""
    source, dist = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("dist")
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(REPOSITORY / name, source)
    leftovers = shutil.ignore_patterns("__pycache__", "*.egg-info")
    shutil.copytree(REPOSITORY / "src", source / "src", ignore=leftovers)
    options = ["--quiet", "--no-deps", "--no-build-isolation", "--no-index", "--wheel-dir", str(dist)]
    subprocess.run([sys.executable, "-m", "pip", "wheel", *options, str(source)], check=True, timeout=300)
    (built,) = dist.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def python(tmp_path_factory):
    return without_the_package(tmp_path_factory.mktemp("venv"))


@pytest.fixture
def submit(wheel, python, tmp_path):
    def submit(driver, *arguments):
        script = tmp_path / "driver.py"
        script.write_text(driver)
        command = Path(pyspark.__file__).parent / "bin" / "spark-submit"
        environment = {
            name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "SPARK_HOME")
        } | {"PYSPARK_PYTHON": str(python), "PYSPARK_DRIVER_PYTHON": str(python)}
        return subprocess.run(
            [
                command,
                "--master",
                "local[2]",
                "--conf",
                "spark.sql.shuffle.partitions=13",
                "--py-files",
                wheel,
                script,
                *map(str, arguments),
            ],
            capture_output=True,
            text=True,
            timeout=600,
            cwd=tmp_path,
            env=environment,
        )

    return submit


def test_driver_and_workers_run_from_the_wheel_on_the_master_given(submit):
    done = submit(WITNESS)
    assert done.returncode == 0, done.stderr[-4000:]
    master, partitions, driver, *workers = json.loads(done.stdout.strip().splitlines()[-1])
    assert (master, partitions) == ("local[2]", "13")
    assert ".whl/happened/" in driver
    assert all(".zip/happened/" in worker for worker in workers)


def test_analyze_says_under_spark_submit_what_the_kernels_say(submit, tmp_path, seed, capsys):
    simulate = [
        "simulate",
        "--processes",
        "4",
        "--messages",
        "100",
        "--duplicate",
        "0.1",
        "--seed",
        str(seed),
    ]
    assert main([*simulate, "--out", str(tmp_path / "run")]) == 0
    capsys.readouterr()
    done = submit(DRIVER, "analyze", tmp_path / "run", "--out", tmp_path / "out", "--json")
    assert done.returncode == 0, done.stderr[-4000:]
    summary = json.loads(done.stdout)
    expected = analyse(read(tmp_path / "run"))
    assert summary["events"] > 400
    for name in summary.keys() & expected.totals.keys():
        assert summary[name] == expected.totals[name], name
    assert {path.name for path in (tmp_path / "out").iterdir()} == {
        *TABLES,
        "summary.json",
        "report.html",
        "view.html",
    }
