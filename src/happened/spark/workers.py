"""Checks that the session's Python workers can run this package, before the first job that needs it.

In    a session, classic or Spark Connect
Cost  nothing where workers run this very interpreter; else one small job of plain Python, once for a session

The job must use nothing that workers could lack: no Arrow, and a function that is pickled by value.
"""

import json
import os
import re
import shutil
import sys

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from ..core.errors import CausalityError
from .classic import context_of

NEEDED = ("numba", "numpy", "pandas", "pyarrow")
"""What workers import besides PySpark, which Spark gives them."""

TASKS = 16
"""Tasks that check, on a cluster; Spark spreads them over the executors it has."""

MISMATCH = re.compile(r"Python in worker has different version:? (.+?) than")
NO_PROGRAM = re.compile(r'Cannot run program "([^"]+)"')


def run_this_python(spark: SparkSession) -> bool:
    """Whether the workers' interpreter is this one, so that they have what this process has imported."""
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
    # By default some versions pass values of such a function through Arrow.
    asked = F.udf(look, "string", useArrow=False)
    try:
        rows = spark.range(0, tasks, 1, tasks).select(asked("id").alias("told")).collect()
    except Exception as error:  # exceptions of several kinds, by version and kind of session
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
        version = ".".join(re.findall(r"\d+", theirs[1]))  # some versions write a tuple
        return f"Spark's Python workers run Python {version}, and this process {_ours()}"
    return None


def _remedy() -> str:
    return (
        f"before the session starts, set PYSPARK_PYTHON (or spark.pyspark.python) to a Python {_ours()} with "
        f"{', '.join(NEEDED)} on every worker; this process runs {sys.executable}"
    )


def _ours() -> str:
    return f"{sys.version_info.major}.{sys.version_info.minor}"
