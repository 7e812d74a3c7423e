"""Verdicts on an order, and the witnesses that prove a violation, as values with a readable str()."""

from dataclasses import dataclass
from html import escape
from itertools import pairwise

from .computation import Event


@dataclass(frozen=True, slots=True)
class EarlyDelivery:
    """A causal or FIFO violation: `process` delivered `early` before `overtaken`, which was sent first."""

    order: str
    computation: str
    process: str
    early: str
    early_delivery: Event
    overtaken: str
    overtaken_delivery: Event
    path: tuple[Event, ...]  # from send(overtaken) to send(early), each an edge of happened-before

    def __str__(self) -> str:
        return _lines(
            f"{self.process} delivered {self.early} before {self.overtaken}{_within(self.computation)}, "
            f"although {self.overtaken} was sent to it causally earlier:",
            *_steps(self.path),
            f"yet at {self.process}:",
            f"  {self.early_delivery.id}  deliver {self.early}    too early",
            f"  {self.overtaken_delivery.id}  deliver {self.overtaken}    overtaken",
        )


@dataclass(frozen=True, slots=True)
class Disagreement:
    """A total-order violation: two processes delivered the same two messages in opposite orders.

    `one` lists the deliveries of `messages[0]` then `messages[1]` at the first process; `other` lists those
    of `messages[1]` then `messages[0]` at the second process.
    """

    computation: str
    messages: tuple[str, str]
    one: tuple[Event, Event]
    other: tuple[Event, Event]

    def __str__(self) -> str:
        a, b = self.messages
        p, q = self.one[0].process, self.other[0].process
        return _lines(
            f"{p} and {q} disagree on the order of {a} and {b}{_within(self.computation)}:",
            *(f"  {event.id}  {_deed(event)}" for event in (*self.one, *self.other)),
        )


@dataclass(frozen=True, slots=True)
class Cycle:
    """A total-order violation of three processes or more, no two of which disagree.

    legs[k] lists the deliveries of messages[k] and then messages[k + 1] at one process; the last leg ends
    with messages[0].
    """

    computation: str
    messages: tuple[str, ...]
    legs: tuple[tuple[Event, Event], ...]

    def __str__(self) -> str:
        circle = " before ".join([*self.messages, self.messages[0]])
        return _lines(
            f"no one order fits all processes{_within(self.computation)}: {circle}:",
            *(f"  {event.id}  {_deed(event)}" for leg in self.legs for event in leg),
        )


Witness = EarlyDelivery | Disagreement | Cycle


@dataclass(frozen=True, slots=True)
class LostCause:
    """`process` delivered `delivered` but never `lost`, which was sent to it causally earlier.

    If several deliveries show this, `delivered` is the first of them.
    """

    order: str
    computation: str
    process: str
    lost: str
    delivered: str
    delivery: Event
    path: tuple[Event, ...]  # from send(lost) to send(delivered), each an edge of happened-before

    def __str__(self) -> str:
        return _lines(
            f"{self.process} delivered {self.delivered} and never {self.lost}"
            f"{_within(self.computation)}, although {self.lost} was sent to it causally earlier:",
            *_steps(self.path),
            f"yet at {self.process}:",
            f"  {self.delivery.id}  deliver {self.delivered}    without {self.lost}",
        )


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the deliveries of a trace imply about one order; `judgement` adds other evidence.

    holds        None if there is no evidence: no deliveries, or (total order) no deliveries whose orders
                 could contradict one another
    violations   causal, fifo: early deliveries. total: for each pair of processes, deliveries at the first
                 one that the second made before, not after, some earlier one; and cycles of three or more
                 processes
    lost_causes  causal, fifo: messages never delivered at a destination that delivered a later-sent one
    """

    order: str
    holds: bool | None
    deliveries: int
    violations: int
    witnesses: tuple[Witness, ...]  # up to the requested limit
    lost_causes: int = 0
    lost_witnesses: tuple[LostCause, ...] = ()

    @property
    def witness(self) -> Witness | None:
        return self.witnesses[0] if self.witnesses else None

    @property
    def examined(self) -> str:
        return f"{self.deliveries:,} deliver{'y' if self.deliveries == 1 else 'ies'} examined"

    def _repr_html_(self) -> str:
        """For notebooks: the sentence and the first witness."""
        shown = "".join(f"<pre>{escape(str(each))}</pre>" for each in self.witnesses[:1])
        return f"<p><strong>{escape(str(self))}</strong></p>{shown}"

    def __str__(self) -> str:
        if not self.deliveries:
            return f"{self.order} order undecided: no deliveries to judge"
        if self.holds is None:
            return f"{self.order} order undecided: {self.examined}, none that could show it"
        if self.holds:
            return f"{self.order} order holds: {self.examined}, no violation"
        disagreements = f"disagreement{'' if self.violations == 1 else 's'} between processes"
        found = disagreements if self.order == "total" else "of them too early"
        return f"{self.order} order VIOLATED: {self.examined}, {self.violations:,} {found}"


def _lines(*lines: str) -> str:
    return "\n".join(lines)


def _deed(event: Event) -> str:
    return f"{event.kind} {event.message}" if event.message is not None else event.kind


def _steps(path: tuple[Event, ...]) -> list[str]:
    """The events of a causal path, one per line."""
    lines = [f"  {path[0].id}  {_deed(path[0])}"]
    for before, event in pairwise(path):
        edge = "" if before.process == event.process else f"    ← {before.id}"
        lines.append(f"  {event.id}  {_deed(event)}{edge}")
    return lines


def _within(computation: str) -> str:
    return f" (computation {computation})" if computation else ""
