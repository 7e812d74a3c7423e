"""Causal order by pruning four kinds of redundant information, after Jang, Park, Cho & Yoon (FTDCS 1997).

Assumes    reliable links, FIFO or not, that may duplicate; processes that join get the next index.
Promises   causal order for multicasts to arbitrary sets, oneself included; the units carried are those of
           `ks` on every edge, that is, the necessary ones; each unit pruned is counted under its class.
Leaves out any order between concurrent messages; agreement on the membership.
Invariant  `_ci` maps sender -> clock -> destinations of that message neither known to be reached nor
           guaranteed to be reached; the newest entry of each sender stays even when its set is empty. No two
           entries of a sender name the same destination, so rule R8 of the paper never applies and is left
           out. `_dlv[s]` is the clock of the last message of s delivered here.

`_ci` and `_dlv` are the paper's CI and DLV; the constraints of a message are its DC. Corrections to the paper
(docs/papers.md): the own entry is inserted after the send (before it, "just delivered" information survives);
"j ≠ k" in the condition on DC is dropped (it breaks the order of self-addressed messages).

A unit pruned in a merge (R5, R6) was dropped by one side for a reason that the other is not told. If that
side still has a unit naming the same destination d, the unit counts as *replaced* by a later message to d.
Otherwise that side knows everything to d as *delivered*, so the unit counts as delivered too. "Replaced" is
wrong only where the unit was delivered and the remaining message to d is concurrent to it.
"""

from collections.abc import Iterable, Iterator

from ...core.destinations import unpack
from ...core.effects import Send
from .. import notation
from ..facts import Facts, Promises, Waits, WireFormat
from ..holding import ListeningProcess
from ..machine import Effect, MessageKey, Unit
from ..messages import Application, Entry
from ..snapshots import NUMBERS, Form, kept, table

JUST_DELIVERED, ALREADY_DELIVERED, JUST_REPLACED, ALREADY_REPLACED = CLASSES = (
    "just delivered",
    "already delivered",
    "just replaced",
    "already replaced",
)

Information = dict[int, dict[int, int]]
"""sender -> clock -> set of destinations."""


def _entries(information: Information) -> Iterator[Entry]:
    return ((s, t, dests) for s, row in sorted(information.items()) for t, dests in sorted(row.items()))


def _information(entries: Iterable[Entry]) -> Information:
    found: Information = {}
    for s, t, dests in entries:
        found.setdefault(s, {})[t] = dests
    return found


class PruningMessage(Application):
    """M(sender, clock) as it is sent to one destination."""

    receiver: int
    ci: tuple[Entry, ...]  # by sender and clock; the same for every destination, and names none of them
    dc: tuple[MessageKey, ...]  # the (sender, clock) that `receiver` must deliver first
    payload: bytes

    def about(self) -> Iterator[Entry]:
        yield from self.ci
        yield from ((s, t, 1 << self.receiver) for s, t in self.dc)

    def size(self) -> tuple[int, int]:
        """An entry of CI is what the text calls a dependent; the pairs of DC count only as units."""
        return len(self.ci), super().size()[1]

    def model_bytes(self) -> int:
        """A clock and the ids of sender and destinations per entry of CI; 6 bytes per pair of DC."""
        return super().model_bytes() + 4 * len(self.dc)


class Pruning(ListeningProcess[PruningMessage]):
    facts = Facts(
        name="pruning",
        description="prunes and counts four kinds of redundant information; as little as ks, grouped "
        "otherwise",
        paper="Jang, Park, Cho & Yoon, IEEE Workshop on Future Trends of Distributed Computing Systems, 1997",
        wire=WireFormat(10, "happened.wire.causal:PRUNING"),
        promises=Promises(optimal=True),
        waits=Waits(only_for_past=True, tells_past=True),
    )
    message_type = PruningMessage

    _ci: Information = kept(table(lambda ci: tuple(_entries(ci)), _information))
    _dlv: list[int] = kept(NUMBERS)
    _pruned: dict[str, int] = kept(
        Form(
            lambda n: dict.fromkeys(CLASSES, 0),
            lambda d: tuple(d.values()),
            lambda d: dict(zip(CLASSES, d, strict=True)),
        )
    )

    def stamp(self, clock: int, dests: int, payload: bytes) -> list[Effect]:
        me, n = self.me, self.n
        constraints = self._take_out(dests)
        ci = tuple(_entries(self._ci))
        effects: list[Effect] = [
            Send(d, PruningMessage(me, clock, n, dests, d, ci, tuple(constraints.get(d, ())), payload))
            for d in unpack(dests)
        ]
        self._ci.setdefault(me, {})[clock] = dests
        return effects

    def told(self, message: PruningMessage) -> int:
        waited = (t for s, t in message.dc if s == self.me)
        entered = (t for s, t, _ in message.ci if s == self.me)
        return max(max(waited, default=0), max(entered, default=0))

    def delivered(self, sender: int) -> int:
        return self._dlv[sender]

    def missing(self, message: PruningMessage) -> Iterator[MessageKey]:
        return ((s, t) for s, t in message.dc if self._dlv[s] < t)  # R1

    def learn(self, message: PruningMessage) -> None:
        self._dlv[message.sender] = message.clock  # R3
        self._merge(message)

    def follows(self, message: PruningMessage, other: PruningMessage) -> bool:
        told = (*message.ci, *message.dc)
        return (message.sender == other.sender and message.clock > other.clock) or any(
            sender == other.sender and clock >= other.clock for sender, clock, *_ in told
        )

    def skip(self, process: int, clock: int) -> Iterable[int]:
        self._dlv[process] = max(clock, self._dlv[process])
        return (process,)

    def leave(self, process: int) -> list[Effect]:
        effects = super().leave(process)
        self._drop_gone()
        return effects

    def _drop_gone(self) -> None:
        """Drop the units that name departed processes."""
        for row in self._ci.values():
            row.update({clock: dests & ~self.gone for clock, dests in row.items()})
            _drop_empty(row)

    def pruned(self) -> dict[str, int]:
        """How many units were pruned here, by class of redundancy."""
        return dict(self._pruned)

    def log_units(self) -> frozenset[Unit]:
        return frozenset((s, t, d) for s, t, dests in _entries(self._ci) for d in unpack(dests))

    def knowledge(self) -> list[tuple[str, str]]:
        return [("log", notation.entries((s, t, unpack(dests)) for s, t, dests in _entries(self._ci)))]

    def log_size(self) -> tuple[int, int]:
        entries = list(_entries(self._ci))
        return len(entries), sum(dests.bit_count() for _, _, dests in entries)

    def _take_out(self, dests: int) -> dict[int, list[tuple[int, int]]]:
        """S2, S3: remove and return, per member of `dests`, the messages in CI that it must deliver first."""
        constraints: dict[int, list[tuple[int, int]]] = {}
        for sender, row in sorted(self._ci.items()):
            for clock, members in sorted(row.items()):
                for d in unpack(members & dests):
                    constraints.setdefault(d, []).append((sender, clock))
                    self._pruned[JUST_REPLACED] += 1
                row[clock] = members & ~dests
            _drop_empty(row)
        return constraints

    def _merge(self, message: PruningMessage) -> None:
        """R4 to R7 and R9: merge the message's information into ours, once both pasts are known."""
        theirs = _information(message.ci)
        theirs.setdefault(message.sender, {})[message.clock] = message.dests & ~(1 << self.me)  # R4
        self._pruned[JUST_DELIVERED] += 1
        # Only our own information has units that name us; remove there, too, the unit that R4 has pruned.
        ours = self._ci
        if message.clock in ours.get(message.sender, {}):
            ours[message.sender][message.clock] &= ~(1 << self.me)
        named_by_us, named_by_them = _named(ours), _named(theirs)
        merged: Information = {}
        for s in ours.keys() | theirs.keys():
            merged[s] = row = _survivors(ours.get(s, {}), theirs.get(s, {}))
            self._count(ours.get(s, {}), row, named_by_them)
            self._count(theirs.get(s, {}), row, named_by_us)
            _drop_empty(row)  # R9
        self._ci = merged
        if self.gone:
            self._drop_gone()

    def _count(self, before: dict[int, int], after: dict[int, int], named_by_other: int) -> None:
        """Count one side's units about one sender that the other side made redundant."""
        for clock, members in before.items():
            pruned = members & ~after.get(clock, 0)
            self._pruned[ALREADY_REPLACED] += (pruned & named_by_other).bit_count()
            self._pruned[ALREADY_DELIVERED] += (pruned & ~named_by_other).bit_count()


def _named(information: Information) -> int:
    """The set of all destinations that the units name."""
    named = 0
    for row in information.values():
        for dests in row.values():
            named |= dests
    return named


def _survivors(ours: dict[int, int], theirs: dict[int, int]) -> dict[int, int]:
    """R5, R6, R7 for one sender: absence beside a newer entry means settled."""
    newest_ours, newest_theirs = max(ours, default=0), max(theirs, default=0)
    kept = {t: ours[t] & theirs[t] for t in ours.keys() & theirs.keys()}
    kept |= {t: dests for t, dests in ours.items() if t > newest_theirs}
    kept |= {t: dests for t, dests in theirs.items() if t > newest_ours}
    return kept


def _drop_empty(row: dict[int, int]) -> None:
    """S3, R9: drop a sender's empty entries except the newest."""
    newest = max(row, default=0)
    for clock in [t for t, dests in row.items() if not dests and t < newest]:
        del row[clock]
