"""Write a schema as text: `schema("process string, seq int64, label string?")`."""

import pyarrow as pa


def schema(columns: str, **others: pa.DataType) -> pa.Schema:
    """A schema with these columns, by name and type; a question mark allows nulls.

    others  columns to append, whose types have no short name; they may be null
    """
    fields = []
    for column in columns.split(","):
        name, kind = column.split()
        fields.append(pa.field(name, pa.type_for_alias(kind.rstrip("?")), nullable=kind.endswith("?")))
    return pa.schema([*fields, *(pa.field(name, kind) for name, kind in others.items())])
