"""The fate of each message at each process: one row for each pair that was addressed or delivered.

delivered      addressed to the process, which delivered it once
duplicated     addressed to the process, which delivered it several times
lost           addressed to the process, which did not deliver it before the trace ended
misdelivered   sent, but not to this process, which delivered it nevertheless
never_sent     delivered, but the trace has no send of it
sent_outside   the same in a window of a trace: the send may be outside, and `sender` is unknown

`received_seq`, `received_at` and latencies are those of the first delivery; `copies` counts deliveries.
"""

from typing import ClassVar

import numpy as np
import pyarrow as pa

from ...trace.declared import schema
from ..computation import Computation, event_ids
from ..linearization import MISDELIVERED, NEVER_SENT, REPEATED, SENT_OUTSIDE, Ints, find
from ..skew import Times
from .question import Answers, Question, Subject

FATES = ("lost", "delivered", "duplicated", "misdelivered", "never_sent", "sent_outside")
MESSAGES = schema(
    "computation string, message string, sender string?, sent_seq int64?, sent_event string?, "
    "receiver string, received_seq int64?, received_event string?, sent_at int64?, "
    "received_at int64?, latency int64?, latency_corrected int64?, copies int64, fate string"
)
"""Times and latencies as in TIMES (questions.epochs): as the clocks showed them, and corrected for skew."""


class MessageFates(Question):
    """For computations cut into epochs, the Spark code answers, with a join (spark.by_epoch.steps)."""

    name = "messages"
    help = "what became of each message at each destination, and how long it took"
    tables: ClassVar = {"messages": MESSAGES}

    def whole(self, subject: Subject, answers: Answers) -> None:
        c = subject.computation
        strays = np.flatnonzero(np.isin(c.fate, (MISDELIVERED, NEVER_SENT, SENT_OUTSIDE)))
        message = np.concatenate([c.slot_message, c.aside.message, c.message[strays]]).astype(np.int64)
        receiver = np.concatenate([c.slot_dest, c.aside.dest, c.process[strays]]).astype(np.int64)
        sent = c.send[message]
        received = np.concatenate([c.slot_delivery, c.aside.delivery, strays])
        copies = (received >= 0) + _repetitions(c, message, receiver)
        fate = np.minimum(copies, 2)
        addressed = len(message) - len(strays)
        fate[addressed:] = np.where(sent[addressed:] < 0, 5 if c.is_window else 4, 3)
        computation, receivers = c.names_of(receiver)
        senders = pa.array(c.process_names, pa.string()).take(_where(c.process[sent], sent >= 0))
        sent_seq = _where(c.recorded_seq[sent], sent >= 0)
        received_seq = _where(c.recorded_seq[received], received >= 0)
        columns = [
            computation,
            c.names.take(pa.array(c.message_codes[message])),
            senders,
            sent_seq,
            event_ids(senders, sent_seq),
            receivers,
            received_seq,
            event_ids(receivers, received_seq),
            *_latencies(sent, received, subject.times),
            pa.array(copies),
            pa.array(FATES, pa.string()).take(pa.array(fate)),
        ]
        answers.add("messages", pa.table(columns, schema=MESSAGES))


def _repetitions(c: Computation, message: Ints, receiver: Ints) -> Ints:
    """How often each message was delivered again at its receiver."""
    again = np.flatnonzero(c.fate == REPEATED)
    if not again.size:
        return np.zeros(len(message), np.int64)
    found = c.message[again].astype(np.int64) * c.processes + c.process[again]
    keys, counts = np.unique(found, return_counts=True)
    at = find(keys, message * c.processes + receiver)
    return np.where(at >= 0, counts[at], 0)


def _latencies(sent: Ints, received: Ints, times: Times | None) -> list[pa.Array]:
    """The times of sending and receiving and the latency between them, as shown and corrected."""
    if times is None:
        return [pa.nulls(len(sent), pa.int64())] * 4
    left = (sent >= 0) & times.timed[sent]
    came = (received >= 0) & times.timed[received]
    return [
        _where(times.time[sent], left),
        _where(times.time[received], came),
        _where(times.time[received] - times.time[sent], left & came),
        _where(times.corrected[received] - times.corrected[sent], left & came),
    ]


def _where(values: Ints, known: Ints) -> pa.Array:
    return pa.array(values.astype(np.int64), mask=~known)


QUESTION = MessageFates()
