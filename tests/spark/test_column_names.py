"""The tables can be asked in SQL without quotes: no table, column or field is called by a reserved word."""

import pyarrow as pa
import pytest
from pyspark.errors import ParseException

from happened.causality.analysis import TABLES
from happened.spark.storage import spark_schema

STRICT = {"spark.sql.ansi.enabled": "true", "spark.sql.ansi.enforceReservedKeywords": "true"}


@pytest.fixture
def strict(spark, setting):
    for name, value in STRICT.items():
        setting(name, value)
    return spark


def fields(schema):
    """Columns, and what is inside of them, as SQL names them."""
    for field in schema:
        yield field.name
        if pa.types.is_list(field.type) and pa.types.is_struct(field.type.value_type):
            yield from (f"{field.name}[0].{inner.name}" for inner in field.type.value_type)


@pytest.mark.parametrize("table", TABLES)
def test_nothing_needs_quotes(strict, table):
    schema = TABLES[table]
    strict.createDataFrame([], spark_schema(schema)).createOrReplaceTempView(table)
    for name in fields(schema):
        assert strict.sql(f"SELECT {name} FROM {table} WHERE {name} IS NOT NULL").schema.names, name


def test_reserved_words_are_refused(strict):
    """Otherwise the test above would say nothing."""
    strict.range(1).withColumnRenamed("id", "order").createOrReplaceTempView("reserved")
    with pytest.raises(ParseException):
        strict.sql("SELECT order FROM reserved")
