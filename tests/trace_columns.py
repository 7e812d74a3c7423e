"""Values for columns of the trace that a test does not name: a new column is tested without a new line."""

import pyarrow as pa


def others(schema, named, number=1):
    """A value for each column that is not named; another `number` gives other values."""
    values = {
        pa.string(): f"value {number}",
        pa.int64(): number,
        pa.int32(): number,
        pa.bool_(): number % 2 == 0,
    }
    return {field.name: values[field.type] for field in schema if field.name not in named}
