"""Finds which assumptions of protocols a recorded trace satisfies, and which protocols it rules out.

In    a table that `trace.read` returned.
Out   counts that can be added over parts of a trace if each part holds whole computations.
"""

from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ..causality import Computation, check_delivery, check_order, encode
from ..causality.computation import SEND
from ..causality.linearization import Ints
from ..causality.stamps import stamp_computation
from ..ordering import protocols
from .replay import Recording, arrivals, recordings

MOST_GROUPS = 32
"""A trace with more distinct sets of processes than this has no fixed groups."""

Counts = Counter[str]

LARGEST = ("processes", "groups")
"""Counts of which the maximum over computations is kept, instead of the sum."""


def survey(table: pa.Table) -> Counts:
    recorded, stand_ins = arrivals(table)
    found = recordings(recorded)
    computations = [recording.computation for recording in found]
    fates = check_delivery(computations)
    judged = check_order(encode(table), "causal", limit=0)
    counts: Counts = Counter(
        events=table.num_rows,
        computations=len(found),
        copies=sum(c.slot_dest.size for c in computations),
        stand_ins=stand_ins,
        deliveries=judged.deliveries,
        early=judged.violations,
        overtaking=check_order(computations, "fifo", limit=0).violations,
        lost=fates.lost,
        repeated=fates.duplicated,
        strays=fates.misdelivered + fates.never_sent,
        causes=int(pc.sum(pc.list_value_length(table["causes"])).as_py() or 0),
    )
    for recording in found:
        add(counts, _of_one(recording))
    return counts


def add(counts: Counts, more: Counts) -> None:
    for name, value in more.items():
        counts[name] = max(counts[name], value) if name in LARGEST else counts[name] + value


def _of_one(recording: Recording) -> Counts:
    c = recording.computation
    lengths = np.diff(c.dest_offsets)
    sent = np.flatnonzero(lengths > 0)
    others = lengths[sent] - _to_self(c)[sent]
    return Counter(
        processes=c.processes,
        messages=sent.size,
        to_nobody=int((c.kind == SEND).sum()) - sent.size,
        to_self=int(_to_self(c).sum()),
        unicasts=int((lengths[sent] == 1).sum()),
        broadcasts=int((others == c.processes - 1).sum()),
        unserialized=_unserialized(recording),
        groups=len(recording.groups()),
        untimed=int(recording.moments is None and sent.size > 0),
    )


def _to_self(c: Computation) -> Ints:
    """For each message: whether its sender is among its destinations."""
    own = c.slot_dest == c.process[c.slot_send]
    return np.bincount(c.slot_message[own], minlength=c.send.size)


def _unserialized(recording: Recording) -> int:
    """How many sends did not happen after the previous send in the walk; zero iff all sends are ordered."""
    c = recording.computation
    is_send = np.zeros(c.events, bool)
    is_send[c.send[np.diff(c.dest_offsets) > 0]] = True
    sends = recording.walk[is_send[recording.walk]]
    vectors = stamp_computation(c)
    before, after = sends[:-1], sends[1:]
    return int((vectors[after, c.process[before]] < c.seq[before]).sum())


class Assumption(NamedTuple):
    name: str
    holds: bool
    found: str  # a sentence with the trace's figures


def assumptions(counts: Counts) -> list[Assumption]:
    c, messages = counts, counts["messages"]
    fixed = f"sets of a sender and its destinations; up to {MOST_GROUPS} count as fixed"
    early = "arrivals before an earlier message of their sender"
    unknowing = f"of {messages:,} messages sent without knowing the one before"
    found = (
        (
            "unicast only",
            c["unicasts"] == messages,
            f"{_share(c['unicasts'], messages)} have one destination",
        ),
        (
            "broadcast only",
            c["broadcasts"] == messages,
            f"{_share(c['broadcasts'], messages)} go to everybody",
        ),
        ("fixed groups", c["groups"] <= MOST_GROUPS, f"{c['groups']:,} {fixed}"),
        ("FIFO links", not c["overtaking"], f"{c['overtaking']:,} {early}"),
        ("serialized sends", not c["unserialized"], f"{c['unserialized']:,} {unknowing}"),
        ("reliable links", not c["lost"], f"{c['lost']:,} of {c['copies']:,} copies never arrived"),
    )
    return [Assumption(*each) for each in found]


def _share(count: int, messages: int) -> str:
    return f"{count:,} of {messages:,} messages"


def casts(counts: Counts) -> frozenset[str]:
    """The casts (such as broadcast); a protocol must offer one of them to carry these messages."""
    found = {
        cast
        for cast, count in (("unicast", counts["unicasts"]), ("broadcast", counts["broadcasts"]))
        if count == counts["messages"]
    }
    return frozenset(found or {"multicast"})


def refusal(protocol: str, counts: Counts) -> str | None:
    """Why a protocol cannot carry these messages; None if it may be tried."""
    facts = protocols()[protocol]
    if not casts(counts) & facts.assumes.casts:
        return f"the trace is {_listed(casts(counts))}; {protocol} offers only {_listed(facts.assumes.casts)}"
    if facts.assumes.fifo_links and counts["overtaking"]:
        return f"{protocol} needs FIFO links; {counts['overtaking']:,} arrivals overtook an earlier message"
    if facts.assumes.serialized and counts["unserialized"]:
        unknowing = _share(counts["unserialized"], counts["messages"])
        return f"{protocol} needs serialized sends; {unknowing} were sent without knowing the one before"
    if facts.assumes.fixed_groups and counts["groups"] > MOST_GROUPS:
        return f"{counts['groups']:,} different groups; more than {MOST_GROUPS} are no fixed ones"
    if counts["processes"] > (most := facts.assumes.most_processes):
        named = f"messages of {protocol} can name {most:,}"
        return f"{counts['processes']:,} processes in one computation; {named}"
    return None


def _listed(names: Iterable[str]) -> str:
    return ", ".join(sorted(names))


def notes(counts: Counts) -> list[str]:
    """Sentences that tell readers of the figures how the trace was interpreted."""
    said = (
        (
            "early",
            "{early:,} of {deliveries:,} recorded deliveries came in an order that no causal protocol "
            "allows: they are taken as arrivals, not as deliveries",
        ),
        (
            "stand_ins",
            "{stand_ins:,} deliveries have no recorded arrival and are taken for it: "
            "added delays count from the delivery",
        ),
        ("lost", "{lost:,} copies never arrived: what waits for one is held at the end"),
        ("repeated", "{repeated:,} arrivals are repetitions, replayed as duplicates"),
        ("strays", "{strays:,} arrivals of messages not sent there are left out"),
        ("to_nobody", "{to_nobody:,} sends without a destination are left out"),
        ("causes", "{causes:,} recorded causes are no messages: no protocol sees the order they make"),
        ("untimed", "{untimed:,} of {computations:,} computations lack times: delays are in local events"),
    )
    return [text.format(**counts) for name, text in said if counts[name]]
