"""A Spark session whose Python workers are this interpreter and can import this package."""

import os
import shutil
import sys
import tempfile
import zipfile
from pathlib import Path

from pyspark.sql import SparkSession

import happened

from ..core.errors import CausalityError

ROOT = Path(happened.__file__).parent
DEFAULT_MASTER = "local[*]"
LOGGING = Path(__file__).with_name("log4j2.properties")


def session(master: str | None = None, *, memory: str = "2g") -> SparkSession:
    """A session on `master`; under spark-submit, or where one is running, that one."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    builder = (
        SparkSession.builder.appName("happened")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.memory", memory)
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.execution.arrow.pyspark.enabled", "true")
        # Workers keep their compiled kernels; forking one daemon saves importing numba for each task.
        .config("spark.python.worker.reuse", "true")
        .config("spark.driver.extraJavaOptions", f"-Dlog4j2.configurationFile={LOGGING.as_uri()}")
    )
    if master is not None or "spark.master" not in os.environ.get("PYSPARK_SUBMIT_ARGS", ""):
        builder = builder.master(master or os.environ.get("MASTER", DEFAULT_MASTER))
    try:
        spark = builder.getOrCreate()
    except Exception as error:
        if "JAVA_GATEWAY_EXITED" in str(error) or "Java gateway" in str(error):
            raise CausalityError(
                "Spark did not start: it needs Java 17 or newer (Debian: openjdk-17-jre-headless), or "
                "JAVA_HOME set to one; `make install` does that where it may"
            ) from error
        raise
    # Two tasks a core: the default of 200 would cost more in starting tasks than most traces take.
    spark.conf.set("spark.sql.shuffle.partitions", str(max(4, 2 * spark.sparkContext.defaultParallelism)))
    if not ROOT.is_dir() or not (spark.sparkContext.master or "").startswith("local"):
        spark.sparkContext.addPyFile(str(package_zip()))
    return spark


def package_zip() -> Path:
    """This package as a zip for executors that do not have it installed."""
    target = Path(tempfile.mkdtemp(prefix="happened-")) / "happened.zip"
    if not ROOT.is_dir():  # it lies in an archive; workers look only into those called .zip
        return Path(shutil.copy(next(parent for parent in ROOT.parents if parent.is_file()), target))
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in sorted(ROOT.rglob("*")):
            if path.is_file() and "__pycache__" not in path.parts:
                archive.write(path, Path("happened") / path.relative_to(ROOT))
    return target
