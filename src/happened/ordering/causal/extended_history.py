"""An extended causal history, after Rodrigues & Veríssimo (ICDCS 1995 and its report, chapter 4).

This part of a machine, which is not a base class, records three things: the messages that precede its next
one (the causal history H), to which processes each of them was reported (the carbon-copy history C), and the
messages delivered here (the delivery history D, by R5 the clock of the last message of each sender).

Invariant  r is in C(n) only if r sent n, or our causal past has a message to r (or by r) whose delivery at r
           follows that of n there. A message leaves H once C has all its destinations (R8).

The rules are those of the report with the corrections of docs/papers.md: *is-in* compares clocks of the same
sender, a sender has its own messages at once, the same-sender inference of R6.3 runs over all of H, and R9
requires that the *other* members of a separator were told.
"""

from collections.abc import Iterable, Iterator, Sequence, Set
from typing import Any, NamedTuple

from ...core.destinations import unpack
from ...core.lanes import CLOCK_LIMIT
from ...core.places import Separator
from ...core.telling import RuleUse
from ..holding import Want
from ..machine import MessageKey
from ..messages import Application, Entry
from ..notation import dests as set_text
from ..process import Process, refusal
from ..snapshots import SET, TABLE, Part, kept, table


class HistoryEntry(NamedTuple):
    """A message of a causal history, as a timestamp carries it."""

    sender: int
    clock: int
    dests: int  # bit set A: the destinations
    copied: int = 0  # bit set C; zero where carbon copies do not travel (R6.1)


Rows = dict[int, dict[int, tuple[int, int]]]
"""sender -> clock -> (A, C)."""


def _listed(rows: Rows) -> Iterator[HistoryEntry]:
    for sender, row in sorted(rows.items()):
        for clock, (dests, copied) in sorted(row.items()):
            yield HistoryEntry(sender, clock, dests, copied)


def _rows(entries: Iterable[HistoryEntry]) -> Rows:
    rows: Rows = {}
    for sender, clock, dests, copied in entries:
        rows.setdefault(sender, {})[clock] = dests, copied
    return rows


class ExtendedHistory(Part):
    _entries: Rows = kept(table(lambda rows: tuple(_listed(rows)), _rows))
    _delivered: dict[int, int] = kept(TABLE)
    _gone: int = kept()  # bit set: departed processes, to which nothing need be reported
    _known: Set[MessageKey] = kept(SET)  # the content of H at the last call of `expire`

    def __init__(self, me: int) -> None:
        self._me = 1 << me
        self._begin(me + 1)

    def __iter__(self) -> Iterator[HistoryEntry]:
        return _listed(self._entries)

    def last(self, sender: int) -> int:
        """The clock of the last message of this sender that was delivered here; zero if there is none."""
        return self._delivered.get(sender, 0)

    def delivered(self) -> list[MessageKey]:
        """The delivery history: for each sender, its last message delivered here."""
        return sorted(self._delivered.items())

    def stamp(
        self, to: int, separators: Sequence[Separator], *, redundancy: bool, extended: bool
    ) -> tuple[HistoryEntry, ...]:
        """The timestamp of a message to this set, by R2 and R9, with `redundancy` also R7, if `extended`
        R6.1. Whether an entry is needed is decided for each recipient separately, by R7 and R9 together."""
        return tuple(
            entry if extended else entry._replace(copied=0)
            for entry in self
            if self._wanted(entry, to & ~entry.copied if redundancy else to, separators)
        )

    def _wanted(self, entry: HistoryEntry, recipients: int, separators: Sequence[Separator]) -> bool:
        for separator in separators:
            if not recipients:
                return False
            if self._filters(entry, separator):
                recipients &= ~beyond(entry, separator)
        return bool(recipients)

    def _filters(self, entry: HistoryEntry, separator: Separator) -> bool:
        """Whether R9 applies to this entry: all other members of the separator were told of the message."""
        return not separator.members & ~self._me & ~entry.copied

    def sent(self, clock: int, to: int) -> None:
        """Record that we sent a message to this set; its timestamp was computed before (R4, R6.2)."""
        reported = to | self._me
        for row in self._entries.values():
            for key, (dests, copied) in row.items():
                row[key] = dests, copied | reported
        me = self._me.bit_length() - 1
        self._entries.setdefault(me, {})[clock] = to, self._me
        self._delivered[me] = clock
        self._sweep()

    def lacks(self, entries: Iterable[HistoryEntry]) -> Want | None:
        """The first message that a message with this timestamp must wait for (R3)."""
        return next(self.missing(entries), None)

    def missing(self, entries: Iterable[HistoryEntry]) -> Iterator[Want]:
        for sender, clock, dests, _ in entries:
            if dests & self._me and not self._is_in(sender, clock):
                yield sender, clock

    def _is_in(self, sender: int, clock: int) -> bool:
        return self.last(sender) >= clock

    def deliver(self, sender: int, clock: int, to: int, entries: Iterable[HistoryEntry]) -> None:
        """Record that a message with this timestamp is delivered here (R4, R5, R6.3, R8)."""
        self._delivered[sender] = clock
        reported = to | 1 << sender
        for entry in entries:
            self._add(entry, entry.copied | reported)
        self._add(HistoryEntry(sender, clock, to), 1 << sender | self._me)
        self._infer({sender, *(entry.sender for entry in entries)})
        self._sweep()

    def _add(self, entry: HistoryEntry, copied: int) -> None:
        row = self._entries.setdefault(entry.sender, {})
        _, known = row.get(entry.clock, (0, 0))
        row[entry.clock] = entry.dests, known | copied

    def _infer(self, senders: Iterable[int]) -> None:
        """Record in C that who gets a later message of a sender delivers its earlier messages first."""
        for sender in senders:
            row, later = self._entries[sender], 0
            for clock in sorted(row, reverse=True):
                dests, copied = row[clock]
                row[clock] = dests, copied | later
                later |= dests

    def _sweep(self) -> None:
        """R8: drop each message that was reported to all its destinations."""
        entries: Rows = {}
        for sender, row in self._entries.items():
            left = {c: (dests, copied) for c, (dests, copied) in row.items() if dests & ~copied & ~self._gone}
            if left:
                entries[sender] = left
        self._entries = entries

    def leave(self, process: int) -> None:
        self._gone |= 1 << process
        self._sweep()

    def skip(self, process: int, clock: int) -> None:
        """Treat the messages that this process sent us up to this clock as delivered."""
        self._delivered[process] = max(clock, self.last(process))

    def forget(self, process: int) -> None:
        """Drop what is known of this process's messages, and drop it as a destination."""
        self._entries.pop(process, None)
        self._known = {key for key in self._known if key[0] != process}
        others = ~(1 << process)
        for row in self._entries.values():
            row.update({clock: (dests & others, copied & others) for clock, (dests, copied) in row.items()})
        self._sweep()

    def meet(self, process: int) -> None:
        """A new process has reused the index of one that was forgotten."""
        self._gone &= ~(1 << process)
        self._delivered.pop(process, None)

    def expire(self) -> None:
        """§4.5: at least Δ has passed since the last call, so what H had then is delivered everywhere."""
        for sender, clock in self._known:
            self._entries.get(sender, {}).pop(clock, None)
        self._sweep()
        self._known = {(entry.sender, entry.clock) for entry in self}


class ObservedHistory(ExtendedHistory):
    """A history that records which of the rules R2 to R9 had which effect. It runs the same code as
    `ExtendedHistory`, and compares the entries before and after each step."""

    def __init__(self, me: int) -> None:
        super().__init__(me)
        self._told: list[RuleUse] = []
        self._unswept: dict[MessageKey, HistoryEntry] = {}  # the entries just before R8 was last applied

    def observed(self) -> list[RuleUse]:
        """The rule applications since the last call, in order."""
        told, self._told = self._told, []
        return told

    def _tell(self, about: str, what: str, rule: str, reason: str, who: int = 0) -> None:
        self._told.append(RuleUse(about, what, rule, reason, tuple(unpack(who))))

    def held(self, name: str, entries: Iterable[HistoryEntry]) -> None:
        """A message with this timestamp has arrived and must wait."""
        for sender, clock in self.missing(entries):
            reason = f"{sender},{clock} of its timestamp was sent here too, and is not in D"
            self._tell(name, "held", "R3", reason)

    def stamp(
        self, to: int, separators: Sequence[Separator], *, redundancy: bool, extended: bool
    ) -> tuple[HistoryEntry, ...]:
        carried = super().stamp(to, separators, redundancy=redundancy, extended=extended)
        names = {entry[:2] for entry in carried}
        for entry in self:
            lacking = to & ~entry.copied if redundancy else to
            filtering = [s for s in separators if self._filters(entry, s)]
            for separator in filtering:
                lacking &= ~beyond(entry, separator)
            if entry[:2] in names:
                reason = f"{_set(lacking)} may not know of it"
                self._tell(_name(entry), "carried", "R2", reason, lacking)
            else:
                self._tell_left_out(entry, to, filtering, redundancy)
        return carried

    def _tell_left_out(
        self, entry: HistoryEntry, to: int, filtering: Iterable[Separator], redundancy: bool
    ) -> None:
        """Why none of the recipients needs this entry: R7 for some of them, R9 for the others."""
        knowing = to & entry.copied if redundancy else 0
        if knowing:
            self._tell(_name(entry), "left out", "R7", f"{_set(knowing)} was told of it", knowing)
        left = to & ~knowing
        for separator in filtering:
            if across := left & beyond(entry, separator):
                left &= ~across
                others = separator.members & ~self._me
                reason = f"it went to {_set(entry.dests)}, and {_set(across)} is on another side of "
                reason += f"separator {_set(separator.members)}"
                reason += f", whose other members {_set(others)} were told" if others else ""
                self._tell(_name(entry), "left out", "R9", reason, across)

    def sent(self, clock: int, to: int) -> None:
        before = self._by_name()
        super().sent(clock, to)
        for name, entry in before.items():
            self._reported(entry, self._unswept[name], "R6.2", "this message, sent after it, is theirs")
        new = self._unswept[self._me.bit_length() - 1, clock]
        self._tell(_name(new), "enters H and D", "R4", f"sent to {_set(to)}")
        self._tell_swept()

    def deliver(self, sender: int, clock: int, to: int, entries: Iterable[HistoryEntry]) -> None:
        before, last = self._by_name(), self.last(sender)
        super().deliver(sender, clock, to, entries)
        stamped, news = {entry[:2]: entry for entry in entries}, f"{sender},{clock}"
        if last:
            reason = "what this sender sent here earlier has been delivered"
            self._tell(news, f"replaces {sender},{last} in D", "R5", reason)
        for name, entry in self._unswept.items():
            old = before.get(name)
            if old is None:
                why = f"in the timestamp of {news}" if name in stamped else "delivered here"
                self._tell(_name(entry), "enters H", "R4", why)
            by_message = to | 1 << sender | stamped[name].copied if name in stamped else 0
            why = f"{news}, which tells of it, is theirs"
            if name == (sender, clock):
                by_message, why = 1 << sender | self._me, "its sender, and here"
            known = HistoryEntry(*entry[:3], old.copied if old is not None else 0)
            direct = entry._replace(copied=known.copied | entry.copied & by_message)
            self._reported(known, direct, "R6.3", why)
            self._reported(direct, entry, "R6.3", "a later message of the same sender goes there")
        self._tell_swept()

    def _by_name(self) -> dict[MessageKey, HistoryEntry]:
        return {(entry.sender, entry.clock): entry for entry in self}

    def _reported(self, before: HistoryEntry, after: HistoryEntry, rule: str, reason: str) -> None:
        if gained := after.copied & ~before.copied:
            self._tell(_name(after), f"gains {_set(gained)} in C", rule, reason, gained)

    def _sweep(self) -> None:
        self._unswept = self._by_name()
        super()._sweep()

    def _tell_swept(self) -> None:
        left = self._by_name()
        for name, entry in self._unswept.items():
            if name not in left:
                reason = f"it went to {_set(entry.dests)}, all of them in C = {_set(entry.copied)}"
                self._tell(_name(entry), "leaves H", "R8", reason, entry.dests)


def _name(entry: HistoryEntry) -> str:
    return f"{entry.sender},{entry.clock}"


def _set(bits: int) -> str:
    return set_text(unpack(bits))


def beyond(entry: HistoryEntry, separator: Separator) -> int:
    """The processes in the components of the separator that the message was not sent to."""
    outside, sides = entry.dests & ~separator.members, 0
    for component in separator.components:
        if component & outside:
            outside &= ~component
        else:
            sides |= component
    return 0 if outside else sides  # a destination is in no known component: it may be in any


class Timestamped(Application):
    """A message whose field `entries` is its timestamp."""

    @property
    def entries(self) -> tuple[HistoryEntry, ...]:
        raise NotImplementedError

    def about(self) -> Iterator[Entry]:
        return ((sender, clock, dests) for sender, clock, dests, _ in self.entries)

    def model_bytes(self) -> int:
        """Sender, clock and destinations of each entry; two bytes more for each carbon copy that travels."""
        return super().model_bytes() + 2 * sum(entry.copied.bit_count() for entry in self.entries)


def without(entries: Iterable[HistoryEntry], forgotten: int) -> tuple[HistoryEntry, ...]:
    """The entries without anything about the forgotten processes."""
    others = ~forgotten
    return tuple(
        HistoryEntry(s, c, dests & others, copied & others)
        for s, c, dests, copied in entries
        if not forgotten >> s & 1 and dests & others
    )


def check_entries(message: Any, entries: Iterable[HistoryEntry], name: MessageKey, process: Process) -> None:
    """Raise if no correct peer gives this timestamp to the message of this name; the state is unchanged."""
    sender, clock = name
    for s, c, dests, copied in entries:
        if not 0 <= s < process.n or not 0 < c < CLOCK_LIMIT or not dests or (dests | copied) >> process.n:
            raise refusal(message, f"follows M({s}, {c}), which nobody can have sent")
        if s == sender and c >= clock:
            raise refusal(message, f"follows M({s}, {c}), which its sender had not sent yet")
        if s == process.me:
            process.check_known(message, c)
