"""The rules of Rodrigues & Veríssimo as printed: each class undoes one correction of docs/papers.md, for the
explorers to find."""

from happened.ordering.causal.extended_history import ExtendedHistory
from happened.ordering.causal.histories import Histories


class IsInWithoutSender(ExtendedHistory):
    """*is-in* as printed: some message of the delivery history, of whatever sender, has as high a clock."""

    def _is_in(self, sender, clock):
        return any(delivered >= clock for delivered in self._delivered.values())


class AppendixRecords(ExtendedHistory):
    """R4 of the appendix: what is sent does not enter the sender's own delivery history."""

    def sent(self, clock, to):
        me = self._me.bit_length() - 1
        before = self._delivered.get(me)
        super().sent(clock, to)
        del self._delivered[me]
        if before is not None:
            self._delivered[me] = before


class InferenceOverTimestamp(ExtendedHistory):
    """R6.3 as printed: what earlier messages of a sender gained is worked out for n in H_m alone."""

    def deliver(self, sender, clock, to, entries):
        self._fresh = {(entry.sender, entry.clock) for entry in entries}
        self._latest = (sender, clock, to)
        super().deliver(sender, clock, to, entries)

    def _infer(self, senders):
        sender, clock, to = self._latest
        for s in senders:
            row, later = self._entries[s], 0
            for c in sorted(row, reverse=True):
                dests, copied = row[c]
                gained = later if (s, c) in self._fresh else 0
                if s == sender and c < clock:
                    gained |= to
                row[c] = dests, copied | gained
                later |= dests


class AppendixFilter(ExtendedHistory):
    """R9 of the appendix: S must be within C_p(n), and by the appendix's rules p never is."""

    def _filters(self, entry, separator):
        return not separator.members & ~(entry.copied & ~self._me)


class BodyFilter(ExtendedHistory):
    """R9 of the body: S within C_p(n), where the last message p sent has an empty C_p."""

    def sent(self, clock, to):
        super().sent(clock, to)
        row = self._entries.get(self._me.bit_length() - 1, {})
        if clock in row:
            row[clock] = to, 0

    def _filters(self, entry, separator):
        return not separator.members & ~entry.copied


class FilterUnreported(ExtendedHistory):
    """R9 without the condition that the other members of the separator were told."""

    def _filters(self, entry, separator):
        return True


def with_history(kind, machine=Histories):
    """A machine that keeps its history by these rules."""

    class Printed(machine):
        def __init__(self, me, n, **options):
            super().__init__(me, n, **options)
            self._history = kind(me)

    return Printed
