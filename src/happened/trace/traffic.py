"""Which processes send to which in a trace, and how often."""

import pyarrow as pa
import pyarrow.compute as pc

from .schema import SENDS


def volumes(table: pa.Table) -> dict[tuple[str, str], int]:
    """Number of message copies by (sender, destination), sorted, from a table of `read`; without messages
    that processes send to themselves."""
    sends = table.filter(pc.field("kind").isin(SENDS))
    senders = sends["process"].take(pc.list_parent_indices(sends["to"]))
    pairs = pa.table({"sender": senders, "to": pc.list_flatten(sends["to"])})
    between = pairs.filter(pc.field("sender") != pc.field("to"))
    counted = between.group_by(["sender", "to"]).aggregate([([], "count_all")])
    columns = (counted[name].to_pylist() for name in ("sender", "to", "count_all"))
    return {(sender, to): copies for sender, to, copies in sorted(zip(*columns, strict=True))}


def traffic(table: pa.Table) -> list[tuple[str, str]]:
    """(sender, destination), each pair once, sorted."""
    return list(volumes(table))
