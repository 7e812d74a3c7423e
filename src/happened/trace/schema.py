"""The event table: one row per event of one or many computations.

An event is named by (computation, process, seq); seq counts the events of its process from 1 without
gaps. `message` connects a send with its arrivals and deliveries. `time` and `clock` are the source's claims,
kept for verification and never trusted for order. `control_entries` and `control_bytes` measure the protocol
information that one transmission carried.

A message whose send has the kind `unordered` takes part in no order: it must reach each of its destinations
once, at any time, and no message waits for another because of it. No edge of happened-before leads from such
a send to its deliveries, since the message carried no ordering information.

COLUMNS is the only list of columns. The schema, the checks of JSON, CSV and `--map`, drafts, Spark's types
and the viewer derive from it, so that a new column is read, written, imported, exported and shown.
"""

from dataclasses import dataclass
from typing import Any

import pyarrow as pa

KINDS = ("send", "receive", "deliver", "internal", "unordered")

SENDS = ("send", "unordered")
"""The kinds of events that send a message."""

LANE = "~"
"""Separator in the names of lanes. A process with concurrent work is recorded as several sequences of events:
`instance~2` and `instance~[orders/42]` are lanes of the process `instance`, which share its clock. Only
readers of spans make such names; they write a tilde in the name of an instance as %7E."""


def instance_of(process: str) -> str:
    """The process that a lane belongs to; for a process without lanes, the process itself."""
    return process.partition(LANE)[0] or process


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a trace.

    required  whether every row must give a value
    absent    the default value
    unit      unit of a number, for display
    judged    whether an analysis uses it: then wrong types are refused, otherwise such values are left out
    asked     whether questions about single events use it
    listed    whether the viewer lists it with an event's attributes; other columns are shown elsewhere, or
              not at all
    """

    name: str
    type: pa.DataType
    required: bool = False
    absent: Any = None
    unit: str = ""
    judged: bool = False
    asked: bool = False
    listed: bool = True

    @property
    def field(self) -> pa.Field:
        return pa.field(self.name, self.type, nullable=not self.required and self.absent is None)

    @property
    def title(self) -> str:
        """The name for display, with spaces."""
        return self.name.replace("_", " ")


def _judged(name: str, type: pa.DataType, **known: Any) -> Column:
    """A column that analyses use; the viewer shows it outside the list of attributes."""
    return Column(name, type, **{"judged": True, "asked": True, "listed": False} | known)


COLUMNS = (
    _judged("computation", pa.string(), absent=""),
    _judged("process", pa.string(), required=True),
    _judged("seq", pa.int64(), required=True),
    _judged("kind", pa.string(), required=True),
    _judged("message", pa.string()),
    _judged("to", pa.list_(pa.string()), listed=True),
    _judged("time", pa.int64(), unit="nanoseconds"),
    _judged("relevant", pa.bool_(), absent=False),
    _judged("causes", pa.list_(pa.struct([("process", pa.string()), ("seq", pa.int64())]))),
    _judged("clock", pa.map_(pa.string(), pa.int64()), asked=False),
    Column("label", pa.string(), asked=True, listed=False),
    Column("attributes", pa.map_(pa.string(), pa.string()), asked=True, listed=False),
    Column("control_entries", pa.int32()),
    Column("control_bytes", pa.int32()),
)

BY_NAME = {column.name: column for column in COLUMNS}

SCHEMA = pa.schema([column.field for column in COLUMNS])

REQUIRED = tuple(column.name for column in COLUMNS if column.required)
"""Columns that every row must give; a row without a computation belongs to the unnamed one, ''."""

DEFAULTS = {column.name: column.absent for column in COLUMNS if column.absent is not None}
"""The default values of these columns."""

CARRIED = tuple(column.name for column in COLUMNS if not column.judged)
"""Columns that are copied unchanged; no analysis uses them."""

QUARANTINE = pa.schema(
    [pa.field("computation", pa.string(), nullable=False), pa.field("reason", pa.string())]
)
"""Rows that belong to no computation, and why. Every analysis writes this table, whatever the questions."""

ASKED = tuple(column.name for column in COLUMNS if column.asked)
"""Columns that questions about single events use."""

LISTED = {column.name: column.title for column in COLUMNS if column.listed}
"""Columns that the viewer lists with an event's attributes, with their display names."""
