"""The event table: its schema, its writers, and the checks that a table must pass.

`TraceWriter` appends rows, and its files stay readable if its process dies; `locate` says where the trace at
a path is; `read` reads Parquet or JSON lines and returns a table that keeps the schema's promises, or raises
TraceFormatError.
"""

from .jsonl import write_jsonl
from .location import locate
from .reader import count, read
from .schema import KINDS, SCHEMA
from .validation import validate
from .writer import TraceWriter

__all__ = ["KINDS", "SCHEMA", "TraceWriter", "count", "locate", "read", "validate", "write_jsonl"]
