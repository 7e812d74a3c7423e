"""What a classic session has and Spark Connect has not: the one place that asks for it."""

from typing import TYPE_CHECKING

from pyspark.sql import SparkSession

if TYPE_CHECKING:
    from pyspark import SparkContext


def context_of(spark: SparkSession) -> "SparkContext | None":
    """The context of a classic session; None on Spark Connect."""
    return None if type(spark).__module__.startswith("pyspark.sql.connect") else spark.sparkContext


def is_stopped(spark: SparkSession) -> bool:
    """Whether a classic session lost its context; Spark Connect gives out none that did."""
    context = context_of(spark)
    return context is not None and context._jsc is None
