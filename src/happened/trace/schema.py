"""The event table: one row per event of one or many computations.

An event is named by (computation, process, seq); seq counts the events of its process from 1 without
gaps. `message` ties a send to its arrivals and deliveries. `time` and `clock` are what the source
claimed: kept to be verified, never trusted for order. `control_entries` and `control_bytes` are what
one transmission carried for the protocol's sake.

A message whose send has the kind `unordered` was sent outside of all orders: it must reach each of its
destinations once, whenever that is, and neither waits for others nor do others wait for it. No edge of
happened-before leads from such a send to its deliveries, since nothing was told on the way that could keep an
order.
"""

import pyarrow as pa

KINDS = ("send", "receive", "deliver", "internal", "unordered")

SENDS = ("send", "unordered")
"""The kinds of events that send a message."""

SCHEMA = pa.schema(
    [
        pa.field("computation", pa.string(), nullable=False),
        pa.field("process", pa.string(), nullable=False),
        pa.field("seq", pa.int64(), nullable=False),
        pa.field("kind", pa.string(), nullable=False),
        pa.field("message", pa.string()),
        pa.field("to", pa.list_(pa.string())),
        pa.field("time", pa.int64()),
        pa.field("relevant", pa.bool_(), nullable=False),
        pa.field("causes", pa.list_(pa.struct([("process", pa.string()), ("seq", pa.int64())]))),
        pa.field("clock", pa.map_(pa.string(), pa.int64())),
        pa.field("label", pa.string()),
        pa.field("attributes", pa.map_(pa.string(), pa.string())),
        pa.field("control_entries", pa.int32()),
        pa.field("control_bytes", pa.int32()),
    ]
)

REQUIRED = ("process", "seq", "kind")
"""Columns every row must give; a row without a computation belongs to the unnamed one, ''."""
