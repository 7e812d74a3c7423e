"""The log of the Kshemkalyani–Singhal algorithm (1998) as a value: which destinations of which messages are
neither known to be reached nor guaranteed to be reached.

An entry (s, t, Dests) is about message M(s, t). The newest entry of each sender is kept even when its set is
empty: it says that every older message of that sender without an entry is settled (§4.2).

In practice nearly every entry is the newest of its sender, so the newest entries live in two `Lanes` vectors,
which merge in a dozen operations on integers; the few older entries, never empty, live in a dict. Logs are
immutable: a multicast shares one log between the sender and all copies of the message.

Memory: 2 · n · max(64, n) bits whatever the log contains, plus the older entries (fewer than n²).
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from ...core.destinations import unpack
from ...core.lanes import Lanes, lanes
from ..machine import MessageKey
from ..snapshots import Form


class DependencyLog(NamedTuple):
    n: int
    clocks: int  # lanes: the clock of each sender's newest entry, 0 where there is none
    sets: int  # lanes: the destination set of each sender's newest entry
    older: dict[MessageKey, int]  # the other non-empty entries; clocks below the sender's newest

    def entries(self) -> Iterator[tuple[int, int, int]]:
        """Every entry (sender, clock, set), ordered by sender and clock."""
        vector = lanes(self.n)
        clocks, sets = vector.unpack(self.clocks), vector.unpack(self.sets)
        newest = {(s, t): dests for s, (t, dests) in enumerate(zip(clocks, sets, strict=True)) if t}
        for (s, t), dests in sorted((newest | self.older).items()):
            yield s, t, dests

    def size(self) -> tuple[int, int]:
        """How many entries the log has, and how many units (members of their sets)."""
        vector = lanes(self.n)
        newest = vector.guards ^ vector.at_least(0, self.clocks)
        units = self.sets.bit_count()
        for dests in self.older.values():
            units += dests.bit_count()
        return newest.bit_count() + len(self.older), units

    def newest(self, sender: int) -> int:
        return lanes(self.n).get(self.clocks, sender)

    def grown(self, n: int) -> "DependencyLog":
        """The same entries, in a log for n processes."""
        old = lanes(self.n)
        return DependencyLog(n, old.widened(self.clocks, n), old.widened(self.sets, n), self.older)


def empty(n: int) -> DependencyLog:
    return DependencyLog(n, 0, 0, {})


def from_entries(n: int, entries: Iterable[tuple[int, int, int]]) -> DependencyLog:
    """The log with these (sender, clock, set) entries; only a sender's newest may be empty."""
    by_sender: dict[int, dict[int, int]] = {}
    for s, t, dests in entries:
        by_sender.setdefault(s, {})[t] = dests
    clocks, sets, older = [0] * n, [0] * n, {}
    for s, row in by_sender.items():
        clocks[s] = newest = max(row)
        sets[s] = row.pop(newest)
        older.update({(s, t): dests for t, dests in row.items()})
    vector = lanes(n)
    return DependencyLog(n, vector.pack(clocks), vector.pack(sets), older)


LOG = Form(
    empty,
    lambda log: (log.n, tuple(log.entries())),
    lambda written: from_entries(*written),
    lambda log, old, n: log.grown(n),
)


def strip(log: DependencyLog, dests: int) -> tuple[DependencyLog, dict[int, int]]:
    """The log without the units that name a member of `dests`, and those units by member. SND(2), SND(3):
    each member gets a message now, and by PC2 the units of older messages to it need no further propagation.
    A member's units are a vector of clocks: by Lemma 1 a log has at most one message of a sender to it."""
    vector = lanes(log.n)
    ones, shift, clocks = vector.ones, vector.shift, log.clocks
    hits = log.sets & ones * dests
    waits: dict[int, int] = {}
    for member in unpack(dests):
        if senders := hits >> member & ones:
            waits[member] = clocks & (senders << shift) - senders
    older = log.older
    reached = [(key, members & dests) for key, members in older.items() if members & dests]
    if reached:
        older = older.copy()
        for (sender, clock), members in reached:
            if rest := older[sender, clock] ^ members:
                older[sender, clock] = rest
            else:
                del older[sender, clock]
            unit = clock << vector.width * sender
            for member in unpack(members):
                waits[member] = waits.get(member, 0) | unit
    return DependencyLog(log.n, clocks, log.sets ^ hits, older), waits


def insert(log: DependencyLog, sender: int, clock: int, dests: int) -> DependencyLog:
    """The log with a new newest entry of a sender; its previous newest entry stays only if not empty."""
    vector = lanes(log.n)
    left = vector.get(log.sets, sender)
    older = log.older
    if left:
        older = {**older, (sender, vector.get(log.clocks, sender)): left}
    return DependencyLog(
        log.n, vector.put(log.clocks, sender, clock), vector.put(log.sets, sender, dests), older
    )


def discard(log: DependencyLog, sender: int, clock: int, dest: int) -> DependencyLog:
    """The log without the unit (sender, clock, dest), if it was there."""
    vector = lanes(log.n)
    if vector.get(log.clocks, sender) == clock:
        return log._replace(sets=log.sets & ~(1 << vector.width * sender + dest))
    members = log.older.get((sender, clock), 0)
    if not members >> dest & 1:
        return log
    older = {key: dests for key, dests in log.older.items() if key != (sender, clock)}
    if rest := members & ~(1 << dest):
        older[sender, clock] = rest
    return log._replace(older=older)


def without(log: DependencyLog, dests: int, senders: int) -> DependencyLog:
    """The log without the units that name a member of `dests`, and without all entries of `senders`."""
    vector = lanes(log.n)
    kept = ~sum(vector.value << vector.width * sender for sender in unpack(senders))
    older = {
        (s, t): rest
        for (s, t), members in log.older.items()
        if not senders >> s & 1 and (rest := members & ~dests)
    }
    return DependencyLog(log.n, log.clocks & kept, log.sets & kept & ~(vector.ones * dests), older)


def merge(a: DependencyLog, b: DependencyLog) -> DependencyLog:
    """The necessary units once both pasts are known: RCV(4) and RCV(5), as corrected. A unit survives iff
    both logs have it, or one has it and the other has no entry as new: absence beside a newer entry means
    settled. Commutative, associative, idempotent on logs of one computation."""
    vector = lanes(a.n)
    guards, shift = vector.guards, vector.shift
    not_behind_a = (a.clocks | guards) - b.clocks & guards
    not_behind_b = (b.clocks | guards) - a.clocks & guards
    from_a = not_behind_a - (not_behind_a >> shift)
    from_b = not_behind_b - (not_behind_b >> shift)
    clocks = b.clocks ^ (a.clocks ^ b.clocks) & from_a
    # If one newest entry is older, take the other's set; if both name the same message, intersect the sets.
    sets = a.sets & (b.sets | ~from_b) | b.sets & ~from_a
    older: dict[MessageKey, int] = {}
    if a.older:
        _keep_older(older, a.older, b, vector)
    if b.older:
        _keep_older(older, b.older, a, vector)
    return DependencyLog(a.n, clocks, sets, older)


def _keep_older(
    kept: dict[MessageKey, int], mine: dict[MessageKey, int], other: DependencyLog, vector: Lanes
) -> None:
    """Add to `kept` those of one log's older entries that survive the merge with the whole other log."""
    clocks, theirs = vector.unpack(other.clocks), other.older
    for key, dests in mine.items():
        newest = clocks[key[0]]
        if key[1] < newest:
            if key not in theirs:
                continue
            dests &= theirs[key]
        elif key[1] == newest:
            dests &= vector.get(other.sets, key[0])
        if dests:
            kept[key] = dests
