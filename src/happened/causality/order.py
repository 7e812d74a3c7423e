"""Did deliveries keep causal, FIFO or total order?

A delivery is early in causal order if a message sent causally before it to the same process is delivered
there later; in FIFO order, if such a message has the same sender. Only first deliveries at addressed
processes count.

A *lost cause* is a message that was never delivered at one of its destinations although that process
delivered a message sent causally after it (in FIFO order: by the same sender). Causal order forbids it, since
delivering M' implies delivering M first (Kshemkalyani & Singhal, "Necessary and sufficient conditions on
information for causal message ordering and their optimal implementation", Distributed Computing 11(2), 1998,
Theorem 4); but a trace that ends too soon shows the same. So lost causes are counted apart from early
deliveries, and `judgement` weighs them by whether the trace is complete.

Looking at the oldest undelivered message of each sender is enough for both: if any message of that sender
happened before, so did its oldest. Cost: deliveries x processes.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import NamedTuple

import numpy as np

from .compiled import compiled
from .computation import Computation, Event, Trace, encode
from .linearization import Ints
from .stamps import stamp_computation
from .total_order import total_order
from .verdict import EarlyDelivery, LostCause, Verdict, Witness
from .witness import causal_path

ORDERS = ("causal", "fifo", "total")
DEFAULT_LIMIT = 100


def check_order(trace: Trace, order: str = "causal", *, limit: int = DEFAULT_LIMIT) -> Verdict:
    """Judge the deliveries of every computation; at most `limit` witnesses of each kind are worked out."""
    if order not in ORDERS:
        raise ValueError(f"order is {order!r}; choose one of {', '.join(ORDERS)}")
    deliveries = violations = lost = 0
    decided = False
    witnesses: list[Witness] = []
    lost_witnesses: list[LostCause] = []
    for computation in encode(trace):
        if order == "total":
            found = total_order(computation, limit - len(witnesses))
        else:
            vectors = stamp_computation(computation)
            left = limit - max(len(witnesses), len(lost_witnesses))
            found = causal_order(computation, vectors, order, left)
        deliveries += found.deliveries
        violations += found.violations
        lost += found.lost_causes
        decided = decided or found.holds is not None
        witnesses += found.witnesses
        lost_witnesses += found.lost_witnesses
    holds = violations == 0 if decided else None
    return Verdict(order, holds, deliveries, violations, tuple(witnesses), lost, tuple(lost_witnesses))


def causal_order(c: Computation, vectors: Ints, order: str, limit: int) -> Verdict:
    """Causal or FIFO order of one computation, or of a union."""
    of = faults_of_order(c, vectors, order)
    if of.deliveries == 0:
        return Verdict(order, None, 0, 0, ())
    witnesses = islice(_early_deliveries(c, order, vectors, of.early, of.overtaken), max(limit, 0))
    named = islice(_lost_witnesses(c, order, vectors, of.lost, of.shown), max(limit, 0))
    count = of.early.size
    return Verdict(order, count == 0, of.deliveries, count, tuple(witnesses), of.lost.size, tuple(named))


class FaultsOfOrder(NamedTuple):
    """Slots: those delivered early, and one that each overtook; those lost, and what first shows it."""

    deliveries: int
    early: Ints
    overtaken: Ints
    lost: Ints
    shown: Ints


def faults_of_order(c: Computation, vectors: Ints, order: str) -> FaultsOfOrder:
    """What breaks causal or FIFO order in a computation, or in a union, in the order of deliveries."""
    slots = np.flatnonzero(c.slot_delivery >= 0)
    slots = slots[np.argsort(c.slot_delivery[slots])]
    if slots.size == 0:
        nothing = np.empty(0, np.int64)
        return FaultsOfOrder(0, nothing, nothing, nothing, nothing)
    fifo = order == "fifo"
    overtaken = _overtaken(c, slots, vectors, same_sender_only=fifo)
    early = np.flatnonzero(overtaken >= 0)
    lost, shown = _lost_causes(c, slots, vectors, same_sender_only=fifo)
    return FaultsOfOrder(slots.size, slots[early], overtaken[early], lost, shown)


@dataclass(frozen=True, slots=True, eq=False)
class Channels:
    """Slots by channel, one channel being all messages of one sender to one destination."""

    queue: Ints  # the slots, channel by channel, each channel's in the order they were sent
    ends: Ints  # where each channel ends in `queue`
    of_slot: Ints  # the channel of each slot
    sender: Ints  # of each channel
    of_dest: Ints  # the channels to process x are of_dest[x]:of_dest[x + 1]

    @classmethod
    def of(cls, dest: Ints, sender: Ints, seq: Ints, processes: int) -> "Channels":
        # In 64 bits: destinations are stored in 32, and processes squared need not fit there.
        keys = dest.astype(np.int64) * processes + sender
        distinct, of_slot = np.unique(keys, return_inverse=True)
        ends = np.cumsum(np.bincount(of_slot, minlength=distinct.size))
        of_dest = np.searchsorted(distinct // processes, np.arange(processes + 1))
        return cls(np.lexsort((seq, keys)), ends, of_slot, distinct % processes, of_dest)


def _overtaken(c: Computation, slots: Ints, vectors: Ints, same_sender_only: bool) -> Ints:
    """For each slot, in order of delivery, a slot it overtook or -1."""
    send = c.slot_send[slots]
    dest = c.slot_dest[slots]
    channels = Channels.of(dest, c.process[send], c.seq[send], c.processes)
    entries = channels.sender - c.first[channels.sender]
    found = early_deliveries(
        slots.size, send, dest, channels.of_slot, c.seq[send], vectors, channels.queue, channels.ends,
        entries, channels.of_dest, same_sender_only,
    )  # fmt: skip
    return np.where(found >= 0, slots[found], -1)


@compiled
def early_deliveries(  # type: ignore[no-untyped-def]
    deliveries, send, dest, channel, seq, vectors, queue, channel_ends, channel_sender, dest_channels,
    same_sender_only,
):  # fmt: skip
    """For each of the first `deliveries` slots, in topological order of delivery, one it overtook, or -1.

    The slots beyond are delivered after all of these. queue holds the slots of each channel in sending
    order; those of channel k end at channel_ends[k]; channel_sender is its sender's entry in vectors, or
    negative if that is not there: then whether its messages were overtaken is not seen.
    """
    overtaken = np.full(deliveries, -1, np.int64)
    delivered = np.zeros(send.size, np.bool_)
    head = np.zeros(channel_ends.size, np.int64)
    head[1:] = channel_ends[:-1]
    for d in range(deliveries):
        own = channel[d]
        first, end = dest_channels[dest[d]], dest_channels[dest[d] + 1]
        if same_sender_only:
            first, end = own, own + 1
        for k in range(first, end):
            if channel_sender[k] >= 0 and head[k] < channel_ends[k]:
                oldest = queue[head[k]]
                if oldest != d and seq[oldest] <= vectors[send[d], channel_sender[k]]:
                    overtaken[d] = oldest
                    break
        delivered[d] = True
        while head[own] < channel_ends[own] and delivered[queue[head[own]]]:
            head[own] += 1
    return overtaken


def _lost_causes(c: Computation, slots: Ints, vectors: Ints, same_sender_only: bool) -> tuple[Ints, Ints]:
    """The slots that are lost causes, and for each the slot whose delivery is the first to show it."""
    lost = np.flatnonzero((c.slot_delivery < 0) & (c.slot_send >= 0))
    send = c.slot_send[lost]
    sender = c.process[send]
    found = first_to_follow(
        vectors, c.slot_send[slots], c.slot_dest[slots], c.process[c.slot_send[slots]], c.processes,
        c.slot_dest[lost], sender, c.seq[send], sender - c.first[sender], same_sender_only,
    )  # fmt: skip
    shown = np.flatnonzero(found >= 0)
    return lost[shown], slots[found[shown]]


def first_to_follow(
    vectors: Ints,
    send: Ints,
    dest: Ints,
    sender: Ints,
    processes: int,
    lost_dest: Ints,
    lost_sender: Ints,
    lost_seq: Ints,
    lost_entry: Ints,
    same_sender_only: bool,
) -> Ints:
    """For each lost slot, the first delivery at its destination of a message sent causally after it, or -1.

    Deliveries are given in topological order by the row of their send in `vectors`, their destination and
    their sender; lost slots by destination, sender, seq of the send and the sender's entry in vectors.
    """
    found = np.full(lost_dest.size, -1, np.int64)
    if not found.size:
        return found
    at = np.flatnonzero(np.isin(dest, lost_dest))  # deliveries elsewhere can show nothing
    if not at.size:
        return found
    channels = Channels.of(lost_dest, lost_sender, lost_seq, processes)
    entries = lost_entry[channels.queue[channels.ends - 1]]
    first = follow_lost(
        vectors, send[at], dest[at], sender[at], lost_seq[channels.queue], channels.ends, channels.sender,
        entries, channels.of_dest, same_sender_only,
    )  # fmt: skip
    found[channels.queue] = np.where(first >= 0, at[first], -1)
    return found


@compiled
def follow_lost(  # type: ignore[no-untyped-def]
    vectors, send, dest, sender, lost_seq, channel_ends, channel_sender, channel_entry, dest_channels,
    same_sender_only,
):  # fmt: skip
    """For each lost slot, by channel and seq, the first delivery that was sent after it; -1 for none."""
    found = np.full(lost_seq.size, -1, np.int64)
    head = np.zeros(channel_ends.size, np.int64)
    head[1:] = channel_ends[:-1]
    for d in range(send.size):
        for k in range(dest_channels[dest[d]], dest_channels[dest[d] + 1]):
            if same_sender_only and channel_sender[k] != sender[d]:
                continue
            known = vectors[send[d], channel_entry[k]]
            while head[k] < channel_ends[k] and lost_seq[head[k]] <= known:
                found[head[k]] = d
                head[k] += 1
    return found


def _early_deliveries(
    c: Computation, order: str, vectors: Ints, early: Ints, overtaken: Ints
) -> Iterator[EarlyDelivery]:
    for slot, passed in zip(early, overtaken, strict=True):
        yield EarlyDelivery(
            order,
            *_destination(c, slot),
            c.message_name(c.slot_message[slot]),
            c.event(c.slot_delivery[slot]),
            c.message_name(c.slot_message[passed]),
            c.event(c.slot_delivery[passed]),
            _between(c, vectors, passed, slot),
        )


def _lost_witnesses(
    c: Computation, order: str, vectors: Ints, lost: Ints, delivered: Ints
) -> Iterator[LostCause]:
    for slot, shown in zip(lost, delivered, strict=True):
        yield LostCause(
            order,
            *_destination(c, slot),
            c.message_name(c.slot_message[slot]),
            c.message_name(c.slot_message[shown]),
            c.event(c.slot_delivery[shown]),
            _between(c, vectors, slot, shown),
        )


def _destination(c: Computation, slot: int) -> tuple[str, str]:
    """The computation and the process that a slot is addressed to."""
    dest = c.slot_dest[slot]
    return c.computation_names[c.owner[dest]], c.process_names[dest]


def _between(c: Computation, vectors: Ints, first: int, last: int) -> tuple[Event, ...]:
    """The causal path between the sends of two slots."""
    return tuple(map(c.event, causal_path(c, vectors, int(c.slot_send[first]), int(c.slot_send[last]))))
