"""The messages of `agreed` and `causal-total`, what processes keep in case that a sender is expelled, and
which process then decides the timestamps of that sender's messages.

A sender that stops may have told the final timestamp of a message to only some of its destinations. So a
process that hears a final timestamp keeps it until all other destinations have delivered the message. Each
reports its progress now and then, as the smallest timestamp at which it may still deliver, which never
decreases. A message whose final timestamp is smaller has been delivered there.

When no more comes from an expelled sender, all processes report what they know of its messages to the first
process that has not ended. That process decides each message on which all present destinations have reported:
its final timestamp if any report has it, and otherwise the largest timestamp that destinations which have the
message proposed. Either is at least what each of them proposed, as the invariant of three_phase.py requires,
and not larger than a final timestamp that no survivor knows any more, so messages that follow it still do.

If the deciding process goes, all report anew to the next one, and include what the first told them.
"""

from collections.abc import Mapping
from operator import attrgetter
from typing import NamedTuple

from ...core.destinations import unpack
from ..machine import MessageKey, key_of
from ..messages import Application, Control, field
from ..snapshots import TABLE, Keeper, by_key, kept


class AgreedMessage(Application):
    """Phase 1, REVISE_TS: the message with its sender's timestamp."""

    number: int  # its number (1, 2, …) among this sender's messages to this destination
    timestamp: int
    payload: bytes
    costs = 4 + 4

    def size(self) -> tuple[int, int]:
        return 1, 0


class AgreedProposal(Control):
    """Phase 2, PROPOSED_TS: the timestamp that process `by` proposes for M(sender, clock)."""

    clock: int
    by: int
    timestamp: int
    via = field("by")
    costs = 4 + 2
    says = "PROPOSED_TS({0.by},{0.sender},{0.clock},{0.timestamp})"


class AgreedFinal(Control):
    """Phase 3, FINAL_TS: the timestamp of M(sender, clock)."""

    clock: int
    timestamp: int
    via = field("sender")
    costs = 4
    says = "FINAL_TS({0.sender},{0.clock},{0.timestamp})"


class AgreedSeen(Control):
    """Process `sender` will deliver nothing more with a timestamp below this one."""

    timestamp: int
    via = field("sender")
    costs = 4
    says = "word of {0.sender} that it delivers nothing more before timestamp {0.timestamp}"


class Known(NamedTuple):
    """What a process knows of M(sender, clock)'s timestamp: the final one, or its own proposal."""

    sender: int
    clock: int
    dests: int  # bit set
    timestamp: int
    is_final: bool


class AgreedReport(Control):
    """What process `sender` knows of the messages of expelled processes."""

    counts = "known"
    ended: int  # bit set: processes from which it gets nothing more
    known: tuple[Known, ...]
    via = field("sender")

    def model_bytes(self) -> int:
        return 4 + 10 * len(self.known)


class AgreedFinals(Control):
    """Phase 3 for messages of other senders: final timestamps that process `sender` has decided in place of
    an expelled process, or passes on before it leaves."""

    counts = "finals"
    entry_bytes = 10
    finals: tuple[tuple[int, int, int], ...]  # (sender, clock, timestamp) of messages of others
    via = field("sender")


SEEN_EVERY = 32
"""A process reports its progress after so many deliveries of messages that other processes keep."""

Finals = dict[int, list[tuple[int, int, int]]]
"""Per process: (sender, clock, timestamp) of each message whose final timestamp it must be told."""


class Survival(Keeper):
    """Final timestamps that other processes may lack, and the state of decisions about expelled senders."""

    finals: dict[MessageKey, Known] = kept(by_key(Known, key_of, in_order=True), within="finals")
    seen: dict[int, int] = kept(TABLE, within="finals")
    """Per process, the timestamp before which it has delivered everything."""
    unsaid: int = kept(within="finals")  # deliveries since we last reported our progress
    unsaid_to: int = kept(within="finals")  # bit set: the other destinations of these messages
    expelled: int = kept(within="expelled")  # bit set: senders whose messages may be undecided somewhere
    ended: int = kept(within="expelled")  # bit set: processes from which no more comes
    reports: dict[int, AgreedReport] = kept(
        by_key(AgreedReport, attrgetter("sender"), in_order=True), within="expelled"
    )  # to us, as the first one present

    def __init__(self, me: int) -> None:
        self.me = me
        self._begin(0)

    def others(self, known: Known) -> int:
        """The destinations that may need a message's final timestamp from us, or we from them."""
        return known.dests & ~(1 << self.me | 1 << known.sender) if known.sender != self.me else 0

    def keep(self, known: Known, gone: int) -> None:
        if self.others(known) & ~gone:
            self.finals[key_of(known)] = known

    def delivered(self, known: Known) -> None:
        if others := self.others(known):
            self.unsaid += 1
            self.unsaid_to |= others

    def say(self) -> int:
        """The processes to which to report our progress now, as a bit set."""
        if self.unsaid < SEEN_EVERY:
            return 0
        to, self.unsaid, self.unsaid_to = self.unsaid_to, 0, 0
        return to

    def note_seen(self, process: int, timestamp: int, gone: int) -> None:
        self.seen[process] = max(timestamp, self.seen.get(process, 0))
        self.drop(gone)

    def drop(self, gone: int) -> None:
        """Drop the final timestamps that no other destination lacks."""
        seen = self.seen
        self.finals = {
            name: known
            for name, known in self.finals.items()
            if any(seen.get(d, 0) <= known.timestamp for d in unpack(self.others(known) & ~gone))
        }

    def forget(self, process: int) -> None:
        """All processes have decided the messages of this process."""
        self.expelled &= ~(1 << process)
        self.finals = {name: known for name, known in self.finals.items() if known.sender != process}
        if not self.expelled:
            self.reports = {}

    def testament(self, gone: int) -> Finals:
        """Per process, the final timestamps that we must tell it before we leave."""
        found: Finals = {}
        for known in self.finals.values():
            for d in unpack(self.others(known) & ~gone):
                found.setdefault(d, []).append((*key_of(known), known.timestamp))
        return found

    def note_report(self, report: AgreedReport) -> None:
        before = self.reports.get(report.sender)
        if before is None or before.ended.bit_count() < report.ended.bit_count():
            self.reports[report.sender] = report

    def conclude(self, present: int) -> Finals:
        """As the first process present, decide what can be decided; each message is decided once."""
        current = {p: report for p, report in self.reports.items() if not self.ended & ~report.ended}
        decided = decide(current, present)
        found: Finals = {}
        for process, report in current.items():
            for known in report.known:
                if not known.is_final and key_of(known) in decided and present >> process & 1:
                    found.setdefault(process, []).append((*key_of(known), decided[key_of(known)]))
            known_now = (
                known._replace(timestamp=decided[key_of(known)], is_final=True)
                if key_of(known) in decided
                else known
                for known in report.known
            )
            self.reports[process] = report._replace(known=tuple(known_now))
        return found


def decide(reports: Mapping[int, AgreedReport], present: int) -> dict[MessageKey, int]:
    """The final timestamp of each message that some process lacks it of, provided that all present
    destinations have reported."""
    every: dict[MessageKey, list[Known]] = {}
    for report in reports.values():
        for known in report.known:
            every.setdefault(key_of(known), []).append(known)
    return {
        name: max(k.timestamp for k in told)  # no proposal exceeds a final one
        for name, told in sorted(every.items())
        if not all(k.is_final for k in told) and all(d in reports for d in unpack(told[0].dests & present))
    }
