"""What a classic session has and Spark Connect lacks: no other module uses it."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from pyspark.sql import SparkSession

from .versions import has

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
    """The functions that read, add and remove the tags of jobs that this thread starts."""

    get: Callable[[], set[str]]
    add: Callable[[str], None]
    remove: Callable[[str], None]


def tags_of(spark: SparkSession) -> Tags:
    """Tags of a session; a classic session of PySpark 3.5 refuses them, and its context takes them."""
    context = context_of(spark)
    if context is None or has("tags of a classic session"):
        session: Any = spark  # typed as Any: the types of a classic session lack these methods
        return Tags(session.getTags, session.addTag, session.removeTag)
    return Tags(lambda: {*context.getJobTags()}, context.addJobTag, context.removeJobTag)
