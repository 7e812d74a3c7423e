"""Check whether deliveries kept causal, FIFO or total order, and whether every message arrived.

A delivery is early in causal order if a message sent causally before its own, to the same process, is
delivered there later; in FIFO order, if in addition both messages have the same sender. Only first deliveries
at addressed processes count.

A *lost cause* is a message that was never delivered at one of its destinations although that process
delivered a message sent causally after it (in FIFO order: by the same sender). Causal order forbids it, since
delivering M' implies delivering M first (Kshemkalyani & Singhal, "Necessary and sufficient conditions on
information for causal message ordering and their optimal implementation", Distributed Computing 11(2), 1998,
Theorem 4); but a trace that ends too soon shows the same. So lost causes are counted apart from early
deliveries, and `judgement` weighs them by whether the trace is complete.

It is enough to look at the oldest undelivered message of each sender: if any undelivered message of that
sender happened before, so did the oldest one. Cost: deliveries x processes.

`check_delivery` checks whether every message reached each of its destinations once, and no other process.
Every delivery has one fate: the first at a destination, a repetition at the same process, a delivery at a
process that was not addressed, or of a message whose send the trace lacks. A message is lost at a destination
that never delivered it (or had not before the trace ended). All of this applies to messages sent unordered,
too. In a window of a trace, a message without a send was sent outside the window.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from .compiled import compiled
from .computation import Computation, Event, Trace, encode
from .linearization import MISDELIVERED, NEVER_SENT, REPEATED, SENT_OUTSIDE, Ints
from .reach import causal_path
from .stamps import stamp_computation
from .total_order import total_order
from .verdict import EarlyDelivery, LostCause, Verdict, Witness

ORDERS = ("causal", "fifo", "total")
DEFAULT_LIMIT = 100
DEFAULT_EXAMPLES = 3


def check_order(trace: Trace, order: str = "causal", *, limit: int = DEFAULT_LIMIT) -> Verdict:
    """Judge the deliveries of every computation; compute at most `limit` witnesses of each kind."""
    if order not in ORDERS:
        raise ValueError(f"order is {order!r}; choose one of {', '.join(ORDERS)}")
    every: list[Verdict] = []
    witnesses: list[Witness] = []
    lost: list[LostCause] = []
    for c in encode(trace):
        if order == "total":
            found = total_order(c, limit - len(witnesses))
        else:
            left = limit - max(len(witnesses), len(lost))
            found = causal_order(c, stamp_computation(c), order, left)
        every.append(found)
        witnesses += found.witnesses
        lost += found.lost_witnesses
    deliveries, violations, lost_causes = (
        sum(getattr(each, name) for each in every) for name in ("deliveries", "violations", "lost_causes")
    )
    holds = violations == 0 if any(each.holds is not None for each in every) else None
    return Verdict(order, holds, deliveries, violations, tuple(witnesses), lost_causes, tuple(lost))


def causal_order(c: Computation, vectors: Ints, order: str, limit: int) -> Verdict:
    """Causal or FIFO order of one computation, or of a union."""
    of, limit = faults_of_order(c, vectors, order), max(limit, 0)
    if of.deliveries == 0:
        return Verdict(order, None, 0, 0, ())

    def told(slot: int) -> tuple[str, str, str, str]:
        dest = c.slot_dest[slot]
        where = c.computation_names[c.owner[dest]], c.process_names[dest]
        return order, *where, c.message_name(c.slot_message[slot])

    def between(first: int, last: int) -> tuple[Event, ...]:
        return tuple(map(c.event, causal_path(c, vectors, int(c.slot_send[first]), int(c.slot_send[last]))))

    def delivery(slot: int) -> tuple[str, Event]:
        return c.message_name(c.slot_message[slot]), c.event(c.slot_delivery[slot])

    witnesses = tuple(
        EarlyDelivery(*told(early), delivery(early)[1], *delivery(passed), between(passed, early))
        for early, passed in zip(of.early[:limit], of.overtaken[:limit], strict=True)
    )
    lost = tuple(
        LostCause(*told(slot), *delivery(shown), between(slot, shown))
        for slot, shown in zip(of.lost[:limit], of.shown[:limit], strict=True)
    )
    return Verdict(order, of.early.size == 0, of.deliveries, of.early.size, witnesses, of.lost.size, lost)


class FaultsOfOrder(NamedTuple):
    """Slots: early deliveries and a slot overtaken by each; lost causes and the delivery showing each."""

    deliveries: int
    early: Ints
    overtaken: Ints
    lost: Ints
    shown: Ints


def faults_of_order(c: Computation, vectors: Ints, order: str) -> FaultsOfOrder:
    """The early deliveries and lost causes of a computation, or union, in the order of deliveries."""
    delivered = np.flatnonzero(c.slot_delivery >= 0)
    delivered = delivered[np.argsort(c.slot_delivery[delivered])]
    lost = np.flatnonzero((c.slot_delivery < 0) & (c.slot_send >= 0))
    send, entry, fifo = c.slot_send[delivered], np.arange(c.processes) - c.first, order == "fifo"

    def told(slots: Ints) -> Ints:
        sends = c.slot_send[slots]
        return np.column_stack([c.process[sends], c.seq[sends], c.slot_dest[slots]]).astype(np.int64)

    slots = told(delivered)
    passed = overtaken(vectors, send, slots, send.size, Channels.of(slots, c.processes), entry, fifo)
    early = np.flatnonzero(passed >= 0)
    found = first_to_follow(vectors, send, slots, told(lost), entry, fifo)
    shown = np.flatnonzero(found >= 0)
    of_early, of_lost = (delivered[early], delivered[passed[early]]), (lost[shown], delivered[found[shown]])
    return FaultsOfOrder(send.size, *of_early, *of_lost)


@dataclass(frozen=True, slots=True, eq=False)
class Channels:
    """Slots by channel; a channel is the sequence of messages from one sender to one destination."""

    queue: Ints  # the slots, channel by channel; each channel's in sending order
    ends: Ints  # where each channel ends in `queue`
    of_slot: Ints  # the channel of each slot
    sender: Ints  # the sender of each channel
    of_dest: Ints  # the channels to process x are of_dest[x]:of_dest[x + 1]

    @classmethod
    def of(cls, slots: Ints, processes: int) -> "Channels":
        """The channels of slots given as (sender, seq of the send, destination)."""
        sender, seq, dest = slots[:, :3].T
        keys = dest * processes + sender
        distinct, of_slot = np.unique(keys, return_inverse=True)
        ends = np.cumsum(np.bincount(of_slot, minlength=distinct.size))
        of_dest = np.searchsorted(distinct // processes, np.arange(processes + 1))
        return cls(np.lexsort((seq, keys)), ends, of_slot, distinct % processes, of_dest)


def overtaken(
    vectors: Ints, send: Ints, slots: Ints, deliveries: int, channels: Channels, entry: Ints, fifo: bool
) -> Ints:
    """For each of the first `deliveries` slots, in topological order of delivery, a slot it overtook, or -1.

    Slots are given by (sender, seq of the send, destination) and the row of their send in `vectors`; the
    slots after the first `deliveries` are delivered later than all of these. `entry` is each process's column
    in `vectors`, negative if absent: overtaken messages of such senders go unnoticed.
    """
    found: Ints = early_deliveries(
        deliveries, send, slots[:, 2].copy(), channels.of_slot, slots[:, 1].copy(), vectors, channels.queue,
        channels.ends, entry[channels.sender], channels.of_dest, fifo,
    )  # fmt: skip
    return found


@compiled
def early_deliveries(  # type: ignore[no-untyped-def]
    deliveries, send, dest, channel, seq, vectors, queue, channel_ends, channel_sender, dest_channels,
    same_sender_only,
):  # fmt: skip
    """Kernel of `overtaken`. queue holds the slots of each channel in sending order; channel k's slots end at
    channel_ends[k]; channel_sender is its sender's entry in vectors."""
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


def first_to_follow(vectors: Ints, send: Ints, delivered: Ints, lost: Ints, entry: Ints, fifo: bool) -> Ints:
    """For each lost slot, the first delivery at its destination of a message sent causally after it, or -1;
    slots and entries as in `overtaken`."""
    found = np.full(len(lost), -1, np.int64)
    at = np.flatnonzero(np.isin(delivered[:, 2], lost[:, 2]))  # deliveries at other processes show nothing
    if not at.size:
        return found
    channels, sender = Channels.of(lost, entry.size), delivered[at, 0]
    first = follow_lost(
        vectors, send[at], delivered[at, 2], sender, lost[channels.queue, 1], channels.ends, channels.sender,
        entry[channels.sender], channels.of_dest, fifo,
    )  # fmt: skip
    found[channels.queue] = np.where(first >= 0, at[first], -1)
    return found


@compiled
def follow_lost(  # type: ignore[no-untyped-def]
    vectors, send, dest, sender, lost_seq, channel_ends, channel_sender, channel_entry, dest_channels,
    same_sender_only,
):  # fmt: skip
    """For each lost slot, by channel and seq, the first delivery with a later send; -1 for none."""
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


@dataclass(frozen=True, slots=True)
class Lost:
    """A message that was addressed to a process and never delivered there."""

    send: Event
    destination: str

    def __str__(self) -> str:
        return f"{self.send.message} to {self.destination} (sent at {self.send.process}#{self.send.seq})"


@dataclass(frozen=True, slots=True)
class Deliveries:
    """The fates of messages, counted over all computations, and the first few examples of each fault."""

    events: int
    processes: int
    messages: int  # messages sent
    deliveries: int  # deliveries with any fate
    lost: int
    duplicated: int
    misdelivered: int
    never_sent: int
    lost_examples: tuple[Lost, ...]
    duplicated_examples: tuple[Event, ...]
    misdelivered_examples: tuple[Event, ...]
    never_sent_examples: tuple[Event, ...]
    sent_outside: int = 0  # deliveries of messages that were sent outside the window


def check_delivery(trace: Trace, *, examples: int = DEFAULT_EXAMPLES) -> Deliveries:
    """The fates of the messages of all computations, with at most `examples` examples of each fault."""
    computations = encode(trace)
    fates = {"duplicated": REPEATED, "misdelivered": MISDELIVERED, "never_sent": NEVER_SENT}
    count = dict.fromkeys(("lost", "sent_outside", *fates), 0)
    shown: dict[str, list[Event]] = {name: [] for name in fates}
    lost: list[Lost] = []
    for c in computations:
        for name, fate in fates.items():
            found = np.flatnonzero(c.fate == fate)
            count[name] += found.size
            shown[name] += [c.event(e) for e in found[: examples - len(shown[name])]]
        count["sent_outside"] += int(np.count_nonzero(c.fate == SENT_OUTSIDE))
        slots, aside = np.flatnonzero(c.slot_delivery < 0), np.flatnonzero(c.aside.delivery < 0)
        count["lost"] += slots.size + aside.size
        message = np.concatenate([c.slot_message[slots], c.aside.message[aside]])
        dest = np.concatenate([c.slot_dest[slots], c.aside.dest[aside]])
        for m, to in list(zip(message, dest, strict=True))[: max(examples - len(lost), 0)]:
            lost.append(Lost(c.event(c.send[m]), c.process_names[to]))
    return Deliveries(
        events=sum(c.events for c in computations),
        processes=sum(c.processes for c in computations),
        messages=sum(int(np.count_nonzero(c.send >= 0)) for c in computations),
        deliveries=sum(int(np.count_nonzero(c.fate)) for c in computations),
        lost_examples=tuple(lost),
        duplicated_examples=tuple(shown["duplicated"]),
        misdelivered_examples=tuple(shown["misdelivered"]),
        never_sent_examples=tuple(shown["never_sent"]),
        **count,
    )
