"""A Spark session that ends with the command; Spark is imported when one is wanted, and not for --help."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from .terminal import note

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@contextmanager
def spark_session(
    master: str | None, doing: str | None = None, *, brief: bool = False
) -> Iterator["SparkSession"]:
    """A session on a master; `doing` is printed with where it runs."""
    from ..spark.session import session

    logging.getLogger("py4j").setLevel(logging.CRITICAL)  # it would print a traceback for every interrupt
    if doing is not None:
        note(f"{doing} on Spark ({master or 'local[*]'})")
    spark = session(master, brief=brief)
    try:
        yield spark
    finally:
        spark.stop()
