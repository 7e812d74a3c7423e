"""How much a source of a stream reads in one batch: Spark's classes, or empty ones where it has none.

PySpark before 4.2 asks a source for its latest offset without saying where the batch begins or how much it
may read, so a batch reads everything there is.
"""

from typing import TYPE_CHECKING

from .versions import has

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

    class ReadAllAvailable(ReadLimit):
        pass

    class ReadMaxBytes(ReadLimit):
        pass

    class ReadMaxRows(ReadLimit):
        pass

    class SupportsTriggerAvailableNow:
        pass


__all__ = ["ReadAllAvailable", "ReadLimit", "ReadMaxBytes", "ReadMaxRows", "SupportsTriggerAvailableNow"]
