"""What `agreed` and `causal-total` keep in case that a sender is expelled, and who decides its messages then.

A sender that stops may have told the final timestamp of a message to some of its destinations only. So who
hears a final timestamp keeps it until all other destinations have delivered the message: each says now and
then how far it is, as the smallest timestamp that it may still deliver at, which never decreases. A message
whose final timestamp is smaller than that has been delivered there.

When nothing more comes from the expelled one, everybody reports what it knows of its messages to the first
process that has not ended. That one decides each message of which all destinations present have reported:
its final timestamp if anybody knows it, and otherwise the largest of what those who have the message
proposed. Either is at least what each of them proposed, as the invariant of three_phase.py requires, and not
larger than the final timestamp that nobody may know any more, so that what follows the message still does.

If the one that decides goes, everybody reports anew to the next, with what it has been told by the first.
"""

from collections.abc import Mapping

from ...core.destinations import unpack
from ..machine import MessageKey
from ..process import State
from .three_phase_messages import AgreedReport, Known

SEEN_EVERY = 32
"""After so many deliveries of what others keep, a process says how far it is."""

Finals = dict[int, list[tuple[int, int, int]]]
"""Per process, (sender, clock, timestamp) of each message whose final timestamp it must be told."""


class Survival:
    """The final timestamps of messages of others that somebody may lack, and what becomes of the expelled."""

    def __init__(self, me: int) -> None:
        self.me = me
        self.finals: dict[MessageKey, Known] = {}
        self.seen: dict[int, int] = {}  # per process the timestamp before which it has delivered everything
        self.unsaid = 0  # deliveries since we said how far we are
        self.unsaid_to = 0  # bit set: whom those concern
        self.expelled = 0  # bit set: those expelled whose messages somebody may not have decided
        self.ended = 0  # bit set: those of whom nothing more comes
        self.reports: dict[int, AgreedReport] = {}  # to us, as the first one present

    def others(self, known: Known) -> int:
        """The destinations of a message who may need its final timestamp from us, or from whom we need it."""
        return known.dests & ~(1 << self.me | 1 << known.sender) if known.sender != self.me else 0

    def keep(self, known: Known, gone: int) -> None:
        if self.others(known) & ~gone:
            self.finals[known.name] = known

    def delivered(self, known: Known) -> None:
        if others := self.others(known):
            self.unsaid += 1
            self.unsaid_to |= others

    def say(self) -> int:
        """Whom to tell how far we are, now; a bit set."""
        if self.unsaid < SEEN_EVERY:
            return 0
        to, self.unsaid, self.unsaid_to = self.unsaid_to, 0, 0
        return to

    def note_seen(self, process: int, timestamp: int, gone: int) -> None:
        self.seen[process] = max(timestamp, self.seen.get(process, 0))
        self.drop(gone)

    def drop(self, gone: int) -> None:
        """Drop the final timestamps that nobody lacks."""
        seen = self.seen
        self.finals = {
            name: known
            for name, known in self.finals.items()
            if any(seen.get(d, 0) <= known.timestamp for d in unpack(self.others(known) & ~gone))
        }

    def forget(self, process: int) -> None:
        """Everybody has decided the messages of this process."""
        self.expelled &= ~(1 << process)
        self.finals = {name: known for name, known in self.finals.items() if known.sender != process}
        if not self.expelled:
            self.reports = {}

    def testament(self, gone: int) -> Finals:
        """Whom to tell which final timestamps, before we leave."""
        found: Finals = {}
        for known in self.finals.values():
            for d in unpack(self.others(known) & ~gone):
                found.setdefault(d, []).append((*known.name, known.timestamp))
        return found

    def note_report(self, report: AgreedReport) -> None:
        before = self.reports.get(report.sender)
        if before is None or before.ended.bit_count() < report.ended.bit_count():
            self.reports[report.sender] = report

    def conclude(self, present: int) -> Finals:
        """As the first one present, decide what can be decided; each message once."""
        current = {p: report for p, report in self.reports.items() if not self.ended & ~report.ended}
        decided = decide(current, present)
        found: Finals = {}
        for process, report in current.items():
            for known in report.known:
                if not known.is_final and known.name in decided and present >> process & 1:
                    found.setdefault(process, []).append((*known.name, decided[known.name]))
            known_now = (
                known._replace(timestamp=decided[known.name], is_final=True)
                if known.name in decided
                else known
                for known in report.known
            )
            self.reports[process] = report._replace(known=tuple(known_now))
        return found

    def state(self) -> State:
        finals = [known for _, known in sorted(self.finals.items())]
        reports = [report for _, report in sorted(self.reports.items())]
        return {
            "finals": (finals, sorted(self.seen.items()), self.unsaid, self.unsaid_to),
            "expelled": (self.expelled, self.ended, reports),
        }

    @classmethod
    def from_state(cls, me: int, state: State) -> "Survival":
        survival = cls(me)
        finals, seen, survival.unsaid, survival.unsaid_to = state["finals"]
        survival.expelled, survival.ended, reports = state["expelled"]
        kept = [Known(*fields) for fields in finals]
        survival.finals, survival.seen = {known.name: known for known in kept}, dict(seen)
        survival.reports = {
            sender: AgreedReport(sender, ended, tuple(Known(*fields) for fields in known))
            for sender, ended, known in reports
        }
        return survival


def decide(reports: Mapping[int, AgreedReport], present: int) -> dict[MessageKey, int]:
    """The final timestamp of each message that somebody lacks it of, if all destinations present have
    reported."""
    every: dict[MessageKey, list[Known]] = {}
    for report in reports.values():
        for known in report.known:
            every.setdefault(known.name, []).append(known)
    return {
        name: max(k.timestamp for k in told)  # the final one, if anybody knows it: no proposal was larger
        for name, told in sorted(every.items())
        if not all(k.is_final for k in told) and all(d in reports for d in unpack(told[0].dests & present))
    }
