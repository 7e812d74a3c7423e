"""Whose settings a session has: the user's, wherever they are written; ours only where nothing is said."""

import json
import os
import subprocess
import sys

import pytest

from happened.core.errors import CausalityError
from happened.spark import session as module
from happened.spark.session import BRIEF, _defaults, configured, session

TOLD = """
import json
from happened.spark.session import session
spark = session(*{arguments})
names = ["spark.master", "spark.sql.shuffle.partitions", "spark.driver.memory", "spark.ui.enabled",
         "spark.app.name"]
print(json.dumps({{name: spark.conf.get(name, None) for name in names}}))
spark.stop()
"""

FILE = """
# what a user wrote
spark.master                  local[1]
spark.sql.shuffle.partitions: 7
spark.driver.memory = 600m
spark.ui.enabled=true
spark.ui.port 0
"""


def told(arguments=(), **environment):
    done = subprocess.run(
        [sys.executable, "-c", TOLD.format(arguments=[*arguments])],
        capture_output=True,
        text=True,
        timeout=300,
        env={name: value for name, value in os.environ.items() if name != "PYSPARK_SUBMIT_ARGS"}
        | environment,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout.strip().splitlines()[-1])


@pytest.mark.slow
def test_what_spark_defaults_conf_says_wins(tmp_path):
    (tmp_path / "spark-defaults.conf").write_text(FILE)
    assert told(SPARK_CONF_DIR=str(tmp_path)) == {
        "spark.master": "local[1]",
        "spark.sql.shuffle.partitions": "7",
        "spark.driver.memory": "600m",
        "spark.ui.enabled": "true",
        "spark.app.name": "happened",
    }


@pytest.mark.slow
def test_what_spark_submit_was_given_wins_and_the_rest_is_ours(tmp_path):
    given = "--conf spark.sql.shuffle.partitions=9 --master local[2] --driver-memory=700m --name theirs"
    found = told(SPARK_CONF_DIR=str(tmp_path), PYSPARK_SUBMIT_ARGS=f"{given} pyspark-shell")
    assert found == {
        "spark.master": "local[2]",
        "spark.sql.shuffle.partitions": "9",
        "spark.driver.memory": "700m",
        "spark.ui.enabled": "false",
        "spark.app.name": "theirs",
    }


def test_where_the_users_settings_stand(tmp_path, monkeypatch):
    other = tmp_path / "other.conf"
    other.write_text("spark.ui.enabled true\nspark.empty\n")
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    (tmp_path / "spark-defaults.conf").write_text(FILE)
    monkeypatch.delenv("PYSPARK_SUBMIT_ARGS", raising=False)
    assert configured()["spark.sql.shuffle.partitions"] == "7"
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", f"--properties-file {other} -c spark.x='a b' pyspark-shell")
    assert configured() == {"spark.ui.enabled": "true", "spark.empty": "", "spark.x": "a b"}


def test_settings_for_a_small_machine_are_for_this_machine_alone(tmp_path, monkeypatch):
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    small = {"spark.ui.enabled", "spark.driver.memory", "spark.sql.shuffle.partitions"}
    assert small <= _defaults("local[3]", "2g").keys()
    assert _defaults("local[3]", "2g")["spark.sql.shuffle.partitions"] == "6"
    assert _defaults("local[3]", "2g", streams=True)["spark.sql.shuffle.partitions"] == "3"
    for elsewhere in ("spark://host:7077", "yarn", "k8s://https://host", "local-cluster[2,1,1024]"):
        assert not small & _defaults(elsewhere, "2g").keys()
    assert "spark.driver.extraJavaOptions" in _defaults("yarn", "2g")
    (tmp_path / "log4j2.properties").write_text("")
    assert "spark.driver.extraJavaOptions" not in _defaults("yarn", "2g")
    assert _defaults("local[3]", "2g", brief=True)["spark.driver.extraJavaOptions"] == BRIEF
    assert "spark.driver.extraJavaOptions" not in _defaults("yarn", "2g", brief=True)


def settings_of(spark):
    return {row.key: row.value for row in spark.sql("SET").collect()}


def test_a_session_that_was_there_is_left_as_it_is(spark, setting, monkeypatch):
    monkeypatch.setattr(module, "_supplied", set())
    before = settings_of(spark)
    setting("spark.sql.shuffle.partitions", "11")
    assert session("local[1]") is spark
    assert spark.conf.get("spark.sql.shuffle.partitions") == "11"
    assert settings_of(spark) == before | {"spark.sql.shuffle.partitions": "11"}


@pytest.fixture
def nothing_runs(monkeypatch):
    monkeypatch.setattr(module, "_running", lambda: None)


def test_nobody_listens_at_a_spark_connect_url(nothing_runs):
    with pytest.raises(CausalityError, match=r"no .* server answers at 127.0.0.1:9 .*start one with"):
        session("sc://127.0.0.1:9/;user_id=me")


@pytest.mark.parametrize("package", ["grpc", "grpc_status", "google.rpc", "zstandard"])
def test_what_spark_connect_lacks_is_said_in_one_sentence(nothing_runs, monkeypatch, package):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(CausalityError) as caught:
        session("sc://127.0.0.1:9")
    name = package.partition(".")[0]
    assert str(caught.value) == (
        f"Spark Connect cannot be used: {name} is not installed; install it with: "
        "pip install 'happened[connect]'"
    )
