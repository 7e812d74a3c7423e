"""Arrow schemas as Spark's."""

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from ..trace import SCHEMA


def spark_schema(schema: pa.Schema) -> StructType:
    return from_arrow_schema(schema)


TRACE = spark_schema(SCHEMA)
