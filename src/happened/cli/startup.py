"""Starts what commands need: Spark, or a process that answers by itself, as fast as that can be.

When pyarrow first gets a Python value it imports pandas if that is installed: a sixth of the time of a
question about a hundred thousand events, and none of these commands needs it. While modules are imported, the
garbage collector would search objects that never become garbage.
"""

import contextlib
import gc
import sys
from collections.abc import Iterator, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import TYPE_CHECKING

from .terminal import note

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

IN_PROCESS = {"ask", "check", "export", "view"}
BETWEEN_COLLECTIONS = 100_000
"""New objects before the garbage collector looks at the youngest generation; 700 by default."""


class _WithoutPandas(MetaPathFinder):
    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname == "pandas":
            raise ModuleNotFoundError("pandas is not needed here", name=fullname)
        return None


_without_pandas = _WithoutPandas()


def spare(argv: Sequence[str]) -> None:
    """Prepare a process that runs this command alone."""
    here = not IN_PROCESS.isdisjoint(argv[:1]) or (argv[:1] == ["analyze"] and "--local" in argv)
    if not here or "--master" in argv:
        return
    gc.set_threshold(BETWEEN_COLLECTIONS)
    if "pandas" not in sys.modules:
        sys.meta_path.insert(0, _without_pandas)


def allow_pandas() -> None:
    """Undo that, for a question that goes to Spark after all."""
    with contextlib.suppress(ValueError):
        sys.meta_path.remove(_without_pandas)


@contextlib.contextmanager
def spark_session(
    master: str | None, doing: str | None = None, *, brief: bool = False
) -> "Iterator[SparkSession]":
    """A session on a master that ends with the command; `doing` is printed with where it runs."""
    import logging

    from ..spark.session import session

    logging.getLogger("py4j").setLevel(logging.CRITICAL)  # it would print a traceback for every interrupt
    if doing is not None:
        note(f"{doing} on Spark ({master or 'local[*]'})")
    spark = session(master, brief=brief)
    try:
        yield spark
    finally:
        spark.stop()
