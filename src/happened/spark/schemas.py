"""Arrow schemas as Spark's, and the one row of an aggregate."""

import pyarrow as pa
from pyspark.sql import Column, DataFrame, Row
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from ..trace import SCHEMA


def spark_schema(schema: pa.Schema) -> StructType:
    return from_arrow_schema(schema)


def event_id(process: str, seq: str) -> Column:
    """The id of the event that two columns name, as causality.computation.event_ids."""
    return F.concat(F.col(process), F.lit("#"), F.col(seq).cast("string"))


def only_row(aggregate: DataFrame) -> Row:
    """The row of an aggregate over all rows, which there always is."""
    row = aggregate.first()
    assert row is not None
    return row


TRACE = spark_schema(SCHEMA)
