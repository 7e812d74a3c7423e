"""Did deliveries keep causal, FIFO or total order?

A delivery is early in causal order if a message sent causally before it to the same process is
delivered there later; in FIFO order, if such a message has the same sender. Only first deliveries at
addressed processes count; a message never delivered somewhere is lost there, which violates no order.

Looking at the oldest undelivered message of each sender is enough: if any message of that sender
happened before, so did its oldest. Cost: deliveries x processes.
"""

from collections.abc import Iterator, Sequence
from itertools import islice

import numpy as np

from .compiled import compiled
from .computation import Computation, Trace, encode
from .linearization import Ints
from .stamps import stamp_computation
from .total import total_order
from .verdict import EarlyDelivery, Verdict, Witness
from .witness import causal_path

ORDERS = ("causal", "fifo", "total")
DEFAULT_LIMIT = 100


def check_order(trace: Trace, order: str = "causal", *, limit: int = DEFAULT_LIMIT) -> Verdict:
    """Judge the deliveries of every computation; at most `limit` witnesses are worked out."""
    if order not in ORDERS:
        raise ValueError(f"order is {order!r}; choose one of {', '.join(ORDERS)}")
    deliveries = violations = 0
    decided = False
    witnesses: list[Witness] = []
    for computation in encode(trace):
        if order == "total":
            found = total_order(computation, limit - len(witnesses))
        else:
            vectors = stamp_computation(computation)
            found = causal_order(computation, vectors, order, limit - len(witnesses))
        deliveries += found.deliveries
        violations += found.violations
        decided = decided or found.holds is not None
        witnesses += found.witnesses
    holds = violations == 0 if decided else None
    return Verdict(order, holds, deliveries, violations, tuple(witnesses))


def causal_order(c: Computation, vectors: Ints, order: str, limit: int) -> Verdict:
    """Causal or FIFO order of one computation, or of a union."""
    slots = np.flatnonzero(c.slot_delivery >= 0)
    slots = slots[np.argsort(c.slot_delivery[slots])]
    if slots.size == 0:
        return Verdict(order, None, 0, 0, ())
    overtaken = _overtaken(c, slots, vectors, same_sender_only=order == "fifo")
    early = np.flatnonzero(overtaken >= 0)
    witnesses = islice(_early_deliveries(c, order, vectors, slots[early], overtaken[early]), max(limit, 0))
    return Verdict(order, early.size == 0, slots.size, early.size, tuple(witnesses))


def _overtaken(c: Computation, slots: Ints, vectors: Ints, same_sender_only: bool) -> Ints:
    """For each slot, in order of delivery, a slot it overtook or -1."""
    send = c.slot_send[slots]
    sender, dest = c.process[send].astype(np.int64), c.slot_dest[slots]
    # A channel is one (destination, sender) pair; queue lists its slots in the order they were sent.
    queue = np.lexsort((c.seq[send], sender, dest))
    channels, channel = np.unique(dest * c.processes + sender, return_inverse=True)
    channel_ends = np.cumsum(np.bincount(channel))
    dest_channels = np.searchsorted(channels // c.processes, np.arange(c.processes + 1))
    senders = channels % c.processes
    entries = senders - c.first[senders]
    found = early_deliveries(
        slots.size, send, dest, channel, c.seq[send], vectors, queue, channel_ends, entries,
        dest_channels, same_sender_only,
    )  # fmt: skip
    return np.where(found >= 0, slots[found], -1)


@compiled
def early_deliveries(  # type: ignore[no-untyped-def]
    deliveries, send, dest, channel, seq, vectors, queue, channel_ends, channel_sender, dest_channels,
    same_sender_only,
):  # fmt: skip
    """For each of the first `deliveries` slots, in topological order of delivery, one it overtook, or -1.

    The slots beyond are delivered after all of these. queue holds the slots of each channel in sending
    order; those of channel k end at channel_ends[k]; channel_sender is its sender's entry in vectors.
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
            if head[k] < channel_ends[k]:
                oldest = queue[head[k]]
                if oldest != d and seq[oldest] <= vectors[send[d], channel_sender[k]]:
                    overtaken[d] = oldest
                    break
        delivered[d] = True
        while head[own] < channel_ends[own] and delivered[queue[head[own]]]:
            head[own] += 1
    return overtaken


def _early_deliveries(
    c: Computation, order: str, vectors: Ints, early: Sequence[int] | Ints, overtaken: Sequence[int] | Ints
) -> Iterator[EarlyDelivery]:
    for slot, passed in zip(early, overtaken, strict=True):
        path = causal_path(c, vectors, int(c.slot_send[passed]), int(c.slot_send[slot]))
        yield EarlyDelivery(
            order=order,
            computation=c.computation_names[c.owner[c.slot_dest[slot]]],
            process=c.process_names[c.slot_dest[slot]],
            early=c.message_name(c.slot_message[slot]),
            early_delivery=c.event(c.slot_delivery[slot]),
            overtaken=c.message_name(c.slot_message[passed]),
            overtaken_delivery=c.event(c.slot_delivery[passed]),
            path=tuple(c.event(e) for e in path),
        )
