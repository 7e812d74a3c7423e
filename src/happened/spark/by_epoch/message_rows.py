"""What became of each message of large computations at each process, by name.

In    the fates that the pass over the rows left (see matching); how far the clocks disagree
Out   rows of MESSAGES (causality.questions.message_fates)
Cost  one scan of the fates by tasks
"""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ...causality.computation import event_ids
from ...causality.questions.message_fates import MESSAGES
from ..storage import read_part
from ..tasks import Runner, on_tasks
from .epoch_layout import Layout
from .named_violations import Laid


def write_messages(spark: Runner, laid: Sequence[Laid]) -> None:
    jobs = [(of.layout, of.output, path) for of in laid for path in of.layout.fates]

    def write(number: int) -> None:
        layout, output, path = jobs[number]
        output.write("messages", message_rows(layout, read_part(path)), f"-{path.stem}")

    on_tasks(spark, len(jobs), write)


def message_rows(layout: Layout, fates: pa.Table) -> pa.Table:
    sender, receiver = (fates[name].cast(pa.string()) for name in ("sender", "receiver"))
    columns = [
        pa.repeat(layout.computation, fates.num_rows),
        fates["message"],
        sender,
        fates["sent_seq"],
        event_ids(sender, fates["sent_seq"]),
        receiver,
        fates["received_seq"],
        event_ids(receiver, fates["received_seq"]),
        fates["sent_at"],
        fates["received_at"],
        pc.subtract(fates["received_at"], fates["sent_at"]),
        pc.subtract(
            _corrected(layout, receiver, fates["received_at"]), _corrected(layout, sender, fates["sent_at"])
        ),
        fates["copies"],
        _fate(fates),
    ]
    return pa.table(columns, schema=MESSAGES)


def _corrected(layout: Layout, process: pa.ChunkedArray, time: pa.ChunkedArray) -> pa.Array:
    """The corrected time; null where there is no time."""
    if layout.clocks is None:
        return pa.nulls(len(time), pa.int64())
    names = pa.array(layout.names, pa.string())
    p = pc.fill_null(pc.index_in(process, value_set=names), 0).to_numpy().astype(np.int64)
    shown = pc.fill_null(time, layout.clocks.origin).to_numpy()
    ahead = layout.clocks.skew.ahead(p, shown - layout.clocks.origin)
    return pa.array(shown - ahead, mask=pc.is_null(time).to_numpy())


def _fate(fates: pa.Table) -> pa.Array:
    conditions = {
        "never_sent": pc.is_null(fates["sender"]),
        "misdelivered": pc.invert(fates["addressed"]),
        "lost": pc.equal(fates["copies"], 0),
        "duplicated": pc.greater(fates["copies"], 1),
    }
    cases = pc.make_struct(
        *(flag.combine_chunks() for flag in conditions.values()), field_names=[*conditions]
    )
    return pc.case_when(cases, *map(pa.scalar, conditions), pa.scalar("delivered"))
