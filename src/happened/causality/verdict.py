"""What a judgement says, and the witnesses it rests on: values that read well when printed."""

from dataclasses import dataclass

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
        sent = [
            f"  {_place(event)}  {_deed(event)}{'' if i == 0 else _edge(self.path[i - 1], event)}"
            for i, event in enumerate(self.path)
        ]
        return "\n".join(
            [
                f"{self.process} delivered {self.early} before {self.overtaken}{_within(self.computation)}, "
                f"although {self.overtaken} was sent to it causally earlier:",
                *sent,
                f"yet at {self.process}:",
                f"  {_place(self.early_delivery)}  deliver {self.early}    too early",
                f"  {_place(self.overtaken_delivery)}  deliver {self.overtaken}    overtaken",
            ]
        )


@dataclass(frozen=True, slots=True)
class Disagreement:
    """A total-order violation: two processes delivered the same two messages in opposite orders.

    `one` lists the deliveries of `messages[0]` then `messages[1]` at the first process; `other` those
    of `messages[1]` then `messages[0]` at the second.
    """

    computation: str
    messages: tuple[str, str]
    one: tuple[Event, Event]
    other: tuple[Event, Event]

    def __str__(self) -> str:
        a, b = self.messages
        p, q = self.one[0].process, self.other[0].process
        return "\n".join(
            [
                f"{p} and {q} disagree on the order of {a} and {b}{_within(self.computation)}:",
                *(f"  {_place(event)}  {_deed(event)}" for event in (*self.one, *self.other)),
            ]
        )


Witness = EarlyDelivery | Disagreement


@dataclass(frozen=True, slots=True)
class Verdict:
    """`holds` is None where there is nothing to judge by: no deliveries, or (total order) no two
    processes that delivered two common messages.

    violations  causal, fifo: early deliveries. total: for each pair of processes, the deliveries at the
                first that the second has in opposite order to some earlier one.
    """

    order: str
    holds: bool | None
    deliveries: int
    violations: int
    witnesses: tuple[Witness, ...]  # as many as were asked for

    @property
    def witness(self) -> Witness | None:
        return self.witnesses[0] if self.witnesses else None

    def __str__(self) -> str:
        examined = f"{self.deliveries:,} deliver{'y' if self.deliveries == 1 else 'ies'} examined"
        if self.holds is None:
            return f"{self.order} order undecided: {examined}, none that could show it"
        if self.holds:
            return f"{self.order} order holds: {examined}, no violation"
        found = "disagreements between two processes" if self.order == "total" else "of them too early"
        return f"{self.order} order VIOLATED: {examined}, {self.violations:,} {found}"


def _place(event: Event) -> str:
    return f"{event.process}#{event.seq}"


def _deed(event: Event) -> str:
    return f"{event.kind} {event.message}" if event.message is not None else event.kind


def _edge(before: Event, event: Event) -> str:
    if before.process == event.process:
        return ""
    return f"    ← {_place(before)}"


def _within(computation: str) -> str:
    return f" (computation {computation})" if computation else ""
