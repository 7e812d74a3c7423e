"""The event table: its schema, who writes it, and what is accepted as one.

`TraceWriter` appends rows and leaves a readable prefix whatever happens to its process; `locate` says where
the trace at a path lies; `read` takes Parquet or JSON lines and returns a table that keeps the schema's
promises or raises TraceFormatError.
"""

from .jsonl import write_jsonl
from .location import locate
from .reader import count, read
from .schema import KINDS, SCHEMA
from .validation import validate
from .writer import TraceWriter

__all__ = ["KINDS", "SCHEMA", "TraceWriter", "count", "locate", "read", "validate", "write_jsonl"]
