"""The features that older versions of PySpark lack, or that Spark Connect lacks beside a classic session.

PySpark 3.5 answers every question about a trace or a frame; streams need 4.0 or newer. No other module checks
versions, or uses what only a classic session has. Before 4.2 PySpark asks a source of a stream for its latest
offset without saying where the batch begins or how much it may read (ReadLimit), so a batch reads everything
there is.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import pyspark
from pyspark.sql import SparkSession

from ..core.errors import CausalityError


class Need(NamedTuple):
    since: tuple[int, int]
    of_spark: str


NEEDS = {
    "happened stream": Need((4, 0), "sources of streams written in Python"),
    "deliver": Need((4, 0), "transformWithState"),
    "held": Need((4, 0), "the state of a checkpoint as a table"),
    "NatsSource": Need((4, 0), "sources of streams written in Python"),
    "a limit of a batch": Need((4, 2), "ReadLimit"),
    "plain checkpoint files": Need((4, 3), "FileSystemBasedCheckpointFileManager where it is now"),
    "tags of a classic session": Need((4, 0), "SparkSession.addTag"),
}
"""For each feature, the first version of PySpark that supports it, and what that version added; names of
happened.streaming are looked up here before they are imported."""


def has(feature: str) -> bool:
    return _installed() >= NEEDS[feature].since


def require(feature: str) -> None:
    """CausalityError if the installed PySpark is too old for a feature."""
    if not has(feature):
        (major, minor), of_spark = NEEDS[feature]
        raise CausalityError(
            f"{feature} needs PySpark {major}.{minor} or newer ({of_spark}); this is {pyspark.__version__}"
        )


def _installed() -> tuple[int, int]:
    major, minor, *_ = pyspark.__version__.split(".")
    return int(major), int(minor)


if TYPE_CHECKING:
    from pyspark import SparkContext


def context_of(spark: SparkSession) -> "SparkContext | None":
    """The context of a classic session; None on Spark Connect."""
    return None if type(spark).__module__.startswith("pyspark.sql.connect") else spark.sparkContext


def is_stopped(spark: SparkSession) -> bool:
    """Whether a classic session lost its context; Spark Connect never returns such a session."""
    context = context_of(spark)
    return context is not None and context._jsc is None


class Tags(NamedTuple):
    """Functions that read, add and remove the tags of the jobs that this thread starts."""

    get: Callable[[], set[str]]
    add: Callable[[str], None]
    remove: Callable[[str], None]


def tags_of(spark: SparkSession) -> Tags:
    """The tag functions of a session; in a classic session of PySpark 3.5, its context has them instead."""
    context = context_of(spark)
    if context is None or has("tags of a classic session"):
        session: Any = spark  # typed as Any: the types of a classic session lack these methods
        return Tags(session.getTags, session.addTag, session.removeTag)
    return Tags(lambda: {*context.getJobTags()}, context.addJobTag, context.removeJobTag)


if TYPE_CHECKING or has("a limit of a batch"):
    from pyspark.sql.streaming.datasource import (
        ReadAllAvailable,
        ReadLimit,
        ReadMaxBytes,
        ReadMaxRows,
        SupportsTriggerAvailableNow,
    )
else:

    class ReadLimit:
        pass

    ReadAllAvailable = ReadMaxBytes = ReadMaxRows = SupportsTriggerAvailableNow = ReadLimit

__all__ = ["ReadAllAvailable", "ReadLimit", "ReadMaxBytes", "ReadMaxRows", "SupportsTriggerAvailableNow"]
