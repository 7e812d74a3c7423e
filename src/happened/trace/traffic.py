"""The pairs of processes of which one sends to the other in a trace, each once."""

import pyarrow as pa
import pyarrow.compute as pc


def traffic(table: pa.Table) -> list[tuple[str, str]]:
    """(sender, destination) of a table that `read` returned, sorted; what is sent to oneself is left out."""
    sends = table.filter(pc.field("kind") == "send")
    senders = sends["process"].take(pc.list_parent_indices(sends["to"]))
    pairs = pa.table({"sender": senders, "to": pc.list_flatten(sends["to"])})
    distinct = pairs.filter(pc.field("sender") != pc.field("to")).group_by(["sender", "to"]).aggregate([])
    return sorted(zip(distinct["sender"].to_pylist(), distinct["to"].to_pylist(), strict=True))
