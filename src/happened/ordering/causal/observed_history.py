"""An extended causal history that records which of the rules R2 to R9 did what (Rodrigues & Veríssimo 1995).

It does what `ExtendedHistory` does, by the same code, and compares the entries before and after each step.
A machine keeps its history in one of these while it is observed (`RecordsRules.observe`).
"""

from collections.abc import Iterable, Sequence

from ...core.destinations import unpack
from ...core.places import Separator
from ...core.telling import RuleUse
from ..machine import MessageKey
from ..notation import dests as set_text
from .extended_history import ExtendedHistory, HistoryEntry, beyond


class ObservedHistory(ExtendedHistory):
    __slots__ = ("_told", "_unswept")

    def __init__(self, me: int) -> None:
        super().__init__(me)
        self._told: list[RuleUse] = []
        self._unswept: dict[MessageKey, HistoryEntry] = {}  # as it was just before R8 was last applied

    def observed(self) -> list[RuleUse]:
        """What was done since this was last asked, in order."""
        told, self._told = self._told, []
        return told

    def held(self, name: str, entries: Iterable[HistoryEntry]) -> None:
        """A message with this timestamp has arrived and must wait."""
        for sender, clock in self.missing(entries):
            reason = f"{sender},{clock} of its timestamp was sent here too, and is not in D"
            self._told.append(RuleUse(name, "held", "R3", reason))

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
                self._told.append(RuleUse(_name(entry), "carried", "R2", reason, tuple(unpack(lacking))))
            else:
                self._told += self._left_out(entry, to, filtering, redundancy)
        return carried

    def _left_out(
        self, entry: HistoryEntry, to: int, filtering: Iterable[Separator], redundancy: bool
    ) -> Iterable[RuleUse]:
        """Why none of the recipients needs this entry: R7 for some of them, R9 for the others."""
        knowing = to & entry.copied if redundancy else 0
        if knowing:
            reason = f"{_set(knowing)} was told of it"
            yield RuleUse(_name(entry), "left out", "R7", reason, tuple(unpack(knowing)))
        left = to & ~knowing
        for separator in filtering:
            if across := left & beyond(entry, separator):
                left &= ~across
                others = separator.members & ~self._me
                reason = f"it went to {_set(entry.dests)}, and {_set(across)} is on another side of "
                reason += f"separator {_set(separator.members)}"
                reason += f", whose other members {_set(others)} were told" if others else ""
                yield RuleUse(_name(entry), "left out", "R9", reason, tuple(unpack(across)))

    def sent(self, clock: int, to: int) -> None:
        before = self._by_name()
        super().sent(clock, to)
        for name, entry in before.items():
            self._reported(entry, self._unswept[name], "R6.2", "this message, sent after it, is theirs")
        new = self._unswept[self._me.bit_length() - 1, clock]
        self._told.append(RuleUse(_name(new), "enters H and D", "R4", f"sent to {_set(to)}"))
        self._tell_swept()

    def deliver(self, sender: int, clock: int, to: int, entries: Iterable[HistoryEntry]) -> None:
        before, last = self._by_name(), self.last(sender)
        super().deliver(sender, clock, to, entries)
        stamped, news = {entry[:2]: entry for entry in entries}, f"{sender},{clock}"
        if last:
            reason = "what this sender sent here earlier has been delivered"
            self._told.append(RuleUse(news, f"replaces {sender},{last} in D", "R5", reason))
        for name, entry in self._unswept.items():
            old = before.get(name)
            if old is None:
                why = f"in the timestamp of {news}" if name in stamped else "delivered here"
                self._told.append(RuleUse(_name(entry), "enters H", "R4", why))
            by_message = to | 1 << sender | stamped[name].copied if name in stamped else 0
            if name == (sender, clock):
                by_message = 1 << sender | self._me
            known = HistoryEntry(*entry[:3], old.copied if old is not None else 0)
            direct = entry._replace(copied=known.copied | entry.copied & by_message)
            why = (
                "its sender, and here" if name == (sender, clock) else f"{news}, which tells of it, is theirs"
            )
            self._reported(known, direct, "R6.3", why)
            self._reported(direct, entry, "R6.3", "a later message of the same sender goes there")
        self._tell_swept()

    def _by_name(self) -> dict[MessageKey, HistoryEntry]:
        return {(entry.sender, entry.clock): entry for entry in self}

    def _reported(self, before: HistoryEntry, after: HistoryEntry, rule: str, reason: str) -> None:
        if gained := after.copied & ~before.copied:
            what = f"gains {_set(gained)} in C"
            self._told.append(RuleUse(_name(after), what, rule, reason, tuple(unpack(gained))))

    def _sweep(self) -> None:
        self._unswept = self._by_name()
        super()._sweep()

    def _tell_swept(self) -> None:
        kept = self._by_name()
        for name, entry in self._unswept.items():
            if name not in kept:
                reason = f"it went to {_set(entry.dests)}, all of them in C = {_set(entry.copied)}"
                self._told.append(RuleUse(_name(entry), "leaves H", "R8", reason, tuple(unpack(entry.dests))))


def _name(entry: HistoryEntry) -> str:
    return f"{entry.sender},{entry.clock}"


def _set(bits: int) -> str:
    return set_text(unpack(bits))
