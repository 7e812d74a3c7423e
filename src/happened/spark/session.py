"""The running Spark session, or a new one; and whether its workers can import this package.

The user's configuration takes precedence: spark-defaults.conf, and the options of spark-submit. Our own
settings for a small machine apply only to a session that we start on this machine; a session that was already
running is left as it is. If workers may run another interpreter, one small job per session checks them. It is
plain Python and uses nothing that workers could lack: no Arrow, and a function that is pickled by value.
"""

import atexit
import json
import os
import re
import shlex
import shutil
import socket
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from urllib.parse import urlsplit
from weakref import WeakSet

import pyspark
from pyspark.errors import PySparkRuntimeError
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import happened

from ..core.errors import CausalityError
from ..core.extras import how_to_install
from .versions import context_of, has, is_stopped

ROOT = Path(happened.__file__).parent
DEFAULT_MASTER = "local[*]"
LOGGING = Path(__file__).with_name("log4j2.properties")
CONNECT = "sc://"
CONNECT_PORT = 15002
CONNECT_SECONDS = 10.0
CONNECT_NEEDS = ("grpc", "grpc_status", "google.rpc", "zstandard")

BRIEF = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""Options of a JVM that only moves bytes between Python workers, for a minute or two: the JVM's optimising
compiler and parallel collector would take more CPU than they save (bench/importing.py)."""

PLAIN_FILES = {
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    )
}
"""Settings of a stream on this machine: Java itself writes and renames a checkpoint's files. By default Spark
starts programs (readlink, stat) for each file, which took a sixth of the CPU of a small batch."""

FLAGS = {"--master": "spark.master", "--driver-memory": "spark.driver.memory", "--name": "spark.app.name"}
"""Options of spark-submit that are settings under another name."""

_supplied: "WeakSet[SparkSession]" = WeakSet()


def session(
    master: str | None = None, *, memory: str = "2g", brief: bool = False, streams: bool = False
) -> SparkSession:
    """The running session, unchanged; otherwise a new one.

    master   where a new session runs; None: as the user's configuration says, else on this machine
    memory   memory of the driver, if it runs on this machine and the user's configuration sets none
    brief    whether a session on this machine is for one job whose work is done in Python (see BRIEF)
    streams  whether a session on this machine is for a stream, where every task of a batch has a state store
    """
    spark = _running()
    if spark is None:
        remote = os.environ.get("SPARK_REMOTE") if master is None else master
        if remote is not None and remote.startswith(CONNECT):
            spark = _connected(remote)
        else:
            spark = _started(master, memory, brief, streams)
    supply(spark)
    return spark


def supply(spark: SparkSession) -> None:
    """Make sure, once, that the session's workers can run this package; CausalityError if they cannot."""
    if spark in _supplied:
        return
    context = context_of(spark)
    sent = context is None or not ROOT.is_dir() or not _is_local(context.master)
    if sent:
        _send_package(spark)
    if not run_this_python(spark) and not check_workers(spark) and not sent:
        _send_package(spark)
    _supplied.add(spark)


def _send_package(spark: SparkSession) -> None:
    context = context_of(spark)
    if context is None:
        spark.addArtifacts(str(package_zip()), pyfile=True)
    else:
        context.addPyFile(str(package_zip()))


def is_on_this_machine(spark: SparkSession) -> bool:
    """Whether the session's tasks see the directories that this process sees."""
    context = context_of(spark)
    if context is not None:
        return _is_local(context.master)
    if spark.client.host not in ("localhost", "127.0.0.1", "::1", "[::1]"):
        return False
    return _is_local(spark.conf.get("spark.master", ""))


@cache
def package_zip() -> Path:
    """This package as a zip for executors that do not have it installed."""
    folder = Path(tempfile.mkdtemp(prefix="happened-package-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    target = folder / "happened.zip"
    if not ROOT.is_dir():  # the package is in an archive; workers import only from archives named .zip
        return Path(shutil.copy(next(parent for parent in ROOT.parents if parent.is_file()), target))
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in sorted(ROOT.rglob("*")):
            if path.is_file() and "__pycache__" not in path.parts:
                archive.write(path, Path("happened") / path.relative_to(ROOT))
    return target


def _running() -> SparkSession | None:
    try:
        spark = SparkSession.active()
    except PySparkRuntimeError:
        return None
    return None if is_stopped(spark) else spark


def _started(master: str | None, memory: str, brief: bool, streams: bool) -> SparkSession:
    builder = SparkSession.builder
    if master is not None:
        builder = builder.master(master)
    if "PYSPARK_GATEWAY_PORT" not in os.environ:  # otherwise spark-submit has configured everything
        given = configured()
        if "spark.pyspark.python" not in given:
            os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
            os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
        where = master or given.get("spark.master") or os.environ.get("MASTER", DEFAULT_MASTER)
        for name, value in _defaults(where, memory, brief, streams).items():
            if name not in given:
                builder = builder.config(name, value)
    try:
        return builder.getOrCreate()
    except Exception as error:
        if "JAVA_GATEWAY_EXITED" in str(error) or "Java gateway" in str(error):
            raise CausalityError(
                "Spark did not start: it needs Java 17 or newer (Debian: openjdk-17-jre-headless), or "
                "JAVA_HOME set to one; `make install` does that where it may"
            ) from error
        raise


def _defaults(master: str, memory: str, brief: bool = False, streams: bool = False) -> dict[str, str]:
    """The defaults of a session that we start."""
    ours = {
        "spark.app.name": "happened",
        "spark.master": master,
        "spark.ui.showConsoleProgress": "false",  # the terminal shows our own progress bar
    }
    java = [BRIEF] if brief and _is_local(master) else []
    if not (_settings_folder() / "log4j2.properties").exists():
        java.append(f"-Dlog4j2.configurationFile={LOGGING.as_uri()}")
    if java:
        ours["spark.driver.extraJavaOptions"] = " ".join(java)
    if not _is_local(master):
        return ours
    number = re.match(r"local\[(\d+)", master)
    cores = int(number[1]) if number else 1 if master == "local" else os.cpu_count() or 1
    if streams and has("plain checkpoint files"):
        ours |= PLAIN_FILES
    return ours | {
        "spark.ui.enabled": "false",
        "spark.driver.memory": memory,
        "spark.sql.session.timeZone": "UTC",
        # Starting 200 tasks, the default, would take longer than most traces do.
        "spark.sql.shuffle.partitions": str(cores if streams else max(4, 2 * cores)),
    }


def configured() -> dict[str, str]:
    """The user's settings, from files and the environment, before a session is started."""
    arguments = [*_arguments()]
    flags = dict(pairwise(arguments))
    file = Path(flags.get("--properties-file", _settings_folder() / "spark-defaults.conf"))
    lines = file.read_text().splitlines() if file.is_file() else []
    settings = {}
    for line in map(str.strip, lines):
        if line and not line.startswith(("#", "!")):
            name, *rest = re.split(r"\s*[=:\s]\s*", line, maxsplit=1)
            settings[name] = "".join(rest)
    for flag, value in pairwise(arguments):
        if flag in ("--conf", "-c"):
            name, _, value = value.partition("=")
            settings[name] = value
        elif flag in FLAGS:
            settings[FLAGS[flag]] = value
    return settings


def _arguments() -> Iterator[str]:
    """The arguments that PySpark passes to spark-submit; `--flag=value` is split into two arguments."""
    for word in shlex.split(os.environ.get("PYSPARK_SUBMIT_ARGS", "")):
        flag, equals, value = word.partition("=")
        if word.startswith("--") and equals:
            yield from (flag, value)
        else:
            yield word


def _settings_folder() -> Path:
    home = os.environ.get("SPARK_HOME") or Path(pyspark.__file__).parent
    return Path(os.environ.get("SPARK_CONF_DIR") or Path(home) / "conf")


def _is_local(master: str | None) -> bool:
    """Whether tasks run in the driver's own process tree; `local-cluster[…]` has executors elsewhere."""
    return re.match(r"local(\[|$)", master or "") is not None


def _connected(url: str) -> SparkSession:
    """A session of a Spark Connect server; this process needs no Java."""
    try:
        for package in CONNECT_NEEDS:
            import_module(package)
    except ModuleNotFoundError as error:
        raise CausalityError(f"Spark Connect cannot be used: {how_to_install(error) or error}") from error
    _refuse_unreachable(url)
    return SparkSession.builder.remote(url).getOrCreate()


def _refuse_unreachable(url: str) -> None:
    """Fail at once if no server listens at the URL; the client would retry for minutes."""
    if any(os.environ.get(name) for name in ("grpc_proxy", "https_proxy", "http_proxy")):
        return
    parts = urlsplit(url.partition(";")[0])
    place = (parts.hostname or "", parts.port or CONNECT_PORT)
    try:
        socket.create_connection(place, CONNECT_SECONDS).close()
    except OSError as error:
        raise CausalityError(
            f"no Spark Connect server answers at {place[0]}:{place[1]} ({error}); start one with "
            "$SPARK_HOME/sbin/start-connect-server.sh, or correct the URL"
        ) from error


NEEDED = ("numba", "numpy", "pandas", "pyarrow")
"""Packages that workers must have besides PySpark, which Spark provides."""

TASKS = 16
"""How many tasks check a cluster's workers; Spark spreads the tasks over its executors."""

MISMATCH = re.compile(r"Python in worker has different version:? (.+?) than")
NO_PROGRAM = re.compile(r'Cannot run program "([^"]+)"')


def run_this_python(spark: SparkSession) -> bool:
    """Whether workers run this interpreter, so that they can import what this process has imported."""
    context = context_of(spark)
    if context is None or not re.match(r"local(\[|$)", context.master or ""):
        return False
    return shutil.which(context.pythonExec) == os.path.abspath(sys.executable)


def check_workers(spark: SparkSession) -> bool:
    """Whether all workers have this package installed; CausalityError if they could not run it."""

    def look(_: int) -> str:
        import json
        import sys
        from importlib.util import find_spec

        found = [name for name in ("happened", *needed) if find_spec(name) is not None]
        return json.dumps([sys.executable, found])

    needed = NEEDED
    tasks = 1 if str(spark.conf.get("spark.master", "")).startswith("local") else TASKS
    # Some versions of PySpark pass a UDF's values through Arrow by default.
    asked = F.udf(look, "string", useArrow=False)
    try:
        rows = spark.range(0, tasks, 1, tasks).select(asked("id").alias("told")).collect()
    except Exception as error:  # the exception's class depends on the version and the kind of session
        reason = _why(str(error))
        if reason is None:
            raise
        raise CausalityError(f"{reason}; {_remedy()}") from error
    told = [json.loads(row["told"]) for row in rows]
    for python, found in told:
        lacking = [name for name in NEEDED if name not in found]
        if lacking:
            names = " and ".join([", ".join(lacking[:-1]), lacking[-1]] if lacking[1:] else lacking)
            raise CausalityError(f"Spark's Python workers run {python}, which lacks {names}; {_remedy()}")
    return all("happened" in found for _, found in told)


def _why(error: str) -> str | None:
    """The reason why workers did not start; None for any other error."""
    if (program := NO_PROGRAM.search(error)) is not None:
        return f"Spark cannot start its Python workers: there is no program {program[1]}"
    if (theirs := MISMATCH.search(error)) is not None:
        version = ".".join(re.findall(r"\d+", theirs[1]))  # some versions of PySpark write a tuple
        return f"Spark's Python workers run Python {version}, and this process {_ours()}"
    return None


def _remedy() -> str:
    return (
        f"before the session starts, set PYSPARK_PYTHON (or spark.pyspark.python) to a Python {_ours()} with "
        f"{', '.join(NEEDED)} on every worker; this process runs {sys.executable}"
    )


def _ours() -> str:
    return f"{sys.version_info.major}.{sys.version_info.minor}"
