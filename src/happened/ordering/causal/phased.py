"""Causal multicast in overlapping groups with one scalar per group, after Mostéfaoui & Raynal (IEEE FTDCS
1993).

Assumes    fixed groups, known to all processes; only members send to a group; links that may reorder or
           duplicate but not lose.
Promises   causal order, within a group and across groups; a message carries one number per group.
Leaves out groups that grow; a departed process is no longer a member. A message waits until all members of
           the group have passed the phase before its own, which may take a resynchronisation message from
           each: causal order alone could be faster.
           Groups that share three members, which are refused: concurrent messages of both can wait for each
           other (tests/ordering/test_phased_groups.py). So the facts promise broadcasts only.
Invariant  entry g of `_phases` is the last phase of group g in our causal past; the messages of one process
           in one group have growing phases. So once every member has passed phase k, all the messages of g up
           to phase k are here, however many there are.

Resynchronisation. A process that receives phase k of a group has passed phase k - 1 or passes it now, by a
message without content. This releases messages of phase k that others hold. A message of another group that
cites phase k of g may be held by a member of g of which its fellow members do not know that it waits: that
member passes phase k + 1 itself, and thereby makes all the others pass phase k.
"""

from collections.abc import Iterable, Iterator
from itertools import chain, combinations
from typing import Any, NamedTuple

from ...core.destinations import pack, unpack
from ...core.errors import LocalProtocolError
from ...core.lanes import CLOCK_LIMIT
from ..facts import BROADCAST, Assumptions, CopyTravel, Facts, MembershipChanges, Option, Waits, WireFormat
from ..holding import HoldingProcess, Want
from ..machine import Effect, Held, MessageKey
from ..messages import Application, Control, field
from ..process import refusal
from ..snapshots import NUMBERS, PAIRS, kept

MOST_SHARED = 2
"""The maximal number of members that two groups may have in common."""


class PhasedMessage(Application):
    """An application message; it has no units, since a phase names no message."""

    group: int  # the index of its group
    previous: int  # the phase of its sender's previous message in this group, 0 if none
    phases: tuple[int, ...]  # per group, its last phase in the causal past; in its own group, its own phase
    payload: bytes

    @property
    def phase(self) -> int:
        return self.phases[self.group]

    def size(self) -> tuple[int, int]:
        return len(self.phases), 0

    def model_bytes(self) -> int:
        return 4 * len(self.phases) + 4


class Resynchronisation(Control):
    """Process `sender` will send nothing more in this group with a phase up to `phase`."""

    group: int
    previous: int
    phase: int
    via = field("sender")
    costs = 4 + 4
    says = "a resynchronisation of {0.sender} up to phase {0.phase} of group {0.group}"


Content = PhasedMessage | Resynchronisation


class _Arrival(NamedTuple):
    """A held message, named by its group and phase in its sender's sequence."""

    sender: int
    clock: int  # group and phase in one number: phase * groups + group
    previous: int  # its sender's previous phase
    content: Content


class PhasedMulticast(HoldingProcess[Any]):
    """A multicast goes to all other members of one of our groups, and to ourselves if the application names
    us. The delay queue holds `_Arrival`s. `pending` names a process that must pass a phase, with clock 0,
    since a message of any name may do so."""

    facts = Facts(
        name="phased",
        description="a number per group: phases that everybody passes, if need be by a message without "
        "content",
        paper="Mostéfaoui & Raynal, IEEE Workshop on Future Trends of Distributed Computing Systems, 1993",
        options=(Option.of_sets("groups", "sets of processes, the same for everybody; all by default"),),
        wire=WireFormat(33, "happened.wire.causal:PHASED"),
        assumes=Assumptions(casts=frozenset({BROADCAST}), fixed_groups=True),
        waits=Waits(names_missing=False),
        membership=MembershipChanges(
            joins=False,
            at_join="groups are fixed, and phases that are past would have to be passed by a new member",
            at_leave="is a member no more; no phase waits for it once all that it sent has come",
            at_expulsion="is a member no more; no phase waits for it once everybody has heard",
        ),
        copies=CopyTravel(common_frame=True),
    )

    _groups: list[int] = kept(NUMBERS)
    _phases: list[int] = kept(NUMBERS)
    _sent: list[int] = kept(NUMBERS)  # the phase of our last message in each group, of any kind
    _passed: dict[tuple[int, int], int] = kept(PAIRS)  # (group, member): the last phase that it passed here

    def __init__(self, me: int, n: int, *, groups: Iterable[Iterable[int]] | None = None) -> None:
        super().__init__(me, n)
        self._groups = _checked(groups if groups is not None else [range(n)], n)
        self._phases = [0] * len(self._groups)
        self._sent = [0] * len(self._groups)

    def address(self, to: Iterable[int], payload: bytes) -> int:
        dests = self.destinations(to, payload)
        self._group_of(dests)
        return dests

    def _group_of(self, dests: int) -> int:
        """The group whose present members are exactly this set, with or without ourselves."""
        itself = 1 << self.me
        for group, members in enumerate(self._groups):
            if members & itself and members & ~self.gone | itself == dests | itself:
                return group
        wanted = sorted(unpack(dests | itself))
        raise LocalProtocolError(f"{wanted} is not a group; phased sends to whole groups only")

    def stamp(self, clock: int, dests: int, payload: bytes) -> list[Effect]:
        group = self._group_of(dests)
        previous = self._sent[group]
        self._sent[group] = self._phases[group] = max(self._phases[group], previous) + 1
        phases = tuple(self._phases)
        message = PhasedMessage(self.me, clock, self.n, dests, group, previous, phases, payload)
        return self.to_others(message, dests)

    def receive(self, message: Content) -> list[Effect]:
        self._check(message)
        since = self.arrival()
        group, phase = message.group, message.phase
        *_, arrival = arrivals = self._arrivals(message)
        if self.is_duplicate(arrival):
            return []
        effects: list[Effect] = list(self._resynchronise(group, phase - 1))
        for each in arrivals:
            if (want := self.lacks(each)) is not None:
                self._parking.hold(each, want, since)
            else:
                effects += self._deliver(each)
        if isinstance(message, PhasedMessage) and arrival in self._parking:
            for other, cited in enumerate(message.phases):
                if other != group and self._lags(other, cited) is not None:
                    effects += self._resynchronise(other, cited + 1)
        return effects

    def _arrivals(self, message: Content) -> list[_Arrival]:
        """A message, preceded by what it implies: its sender has passed the phase before. Without that, two
        messages of one phase would wait for each other's delivery."""
        sender, group, previous, phase = message.sender, message.group, message.previous, message.phase
        told: list[tuple[int, Content]] = [(previous, message)]
        if isinstance(message, PhasedMessage) and previous < phase - 1:
            before = Resynchronisation(sender, group, previous, phase - 1)
            told = [(previous, before), (phase - 1, message)]
        return [_Arrival(sender, m.phase * len(self._groups) + group, after, m) for after, m in told]

    def _check(self, message: Content) -> None:
        if not isinstance(message, Resynchronisation):
            self.check(message, PhasedMessage)
            phases = message.phases
            if len(phases) != len(self._groups) or not all(0 <= phase < CLOCK_LIMIT for phase in phases):
                raise refusal(message, f"speaks of {len(phases)} groups, and there are {len(self._groups)}")
        is_known = 0 <= message.group < len(self._groups)
        if not is_known or not 0 <= message.previous < message.phase < CLOCK_LIMIT:
            raise refusal(message, f"is of no phase after {message.previous} of a group we know")
        members = self._groups[message.group]
        if message.sender == self.me or not members >> self.me & members >> max(message.sender, 0) & 1:
            raise refusal(message, "does not come from another member of a group of ours")

    def _resynchronise(self, group: int, phase: int) -> Iterator[Effect]:
        """Tell the group that we pass this phase, if we have not passed it."""
        previous = self._sent[group]
        if previous < phase and self._groups[group] >> self.me & 1:
            self._sent[group] = phase
            message = Resynchronisation(self.me, group, previous, phase)
            yield from self.to_each(message, self._groups[group] & ~(1 << self.me) & ~self.gone)

    def take(self, arrival: _Arrival) -> list[Effect]:
        self.learn(arrival)
        message = arrival.content
        self._parking.reached(self._lane(message.group, message.sender), message.phase)
        return [self.delivery(message)] if isinstance(message, PhasedMessage) else []

    def learn(self, arrival: _Arrival) -> None:
        message = arrival.content
        self._passed[message.group, message.sender] = message.phase
        if isinstance(message, PhasedMessage):
            self._phases = list(map(max, self._phases, message.phases))

    def close(self, process: int) -> list[Effect]:
        effects = super().close(process)
        for arrival, _ in self._parking:
            if arrival.sender == process:
                # Other members may lack this message. They pass the phase before it when we pass its phase.
                effects += self._resynchronise(arrival.content.group, arrival.content.phase)
        return effects

    def skip(self, process: int, clock: int) -> Iterable[int]:
        groups = [group for group, members in enumerate(self._groups) if members >> process & 1]
        for group in groups:
            self._passed[group, process] = max(clock, self._phase_of(group, process))
        return [self._lane(group, process) for group in groups]

    def _phase_of(self, group: int, member: int) -> int:
        return self._passed.get((group, member), 0)

    def _lane(self, group: int, member: int) -> int:
        return group * self.n + member

    def is_duplicate(self, arrival: _Arrival) -> bool:
        message = arrival.content
        return message.phase <= self._phase_of(message.group, message.sender) or arrival in self._parking

    def lacks(self, arrival: _Arrival) -> Want | None:
        return next(self._wants(arrival), None)

    def missing(self, arrival: _Arrival) -> Iterator[MessageKey]:
        return ((lane % self.n, 0) for lane, _ in self._wants(arrival))

    def _wants(self, arrival: _Arrival) -> Iterator[Want]:
        message = arrival.content
        if self._phase_of(message.group, message.sender) < arrival.previous:
            yield self._lane(message.group, message.sender), arrival.previous
        if isinstance(message, PhasedMessage):
            for group, cited in enumerate(message.phases):
                phase = cited - 1 if group == message.group else cited
                lagging = self._lags(group, phase)
                if lagging is not None:
                    yield self._lane(group, lagging), phase

    def _lags(self, group: int, phase: int) -> int | None:
        """Another member of a group of ours that has not passed this phase; None if there is none. We need
        not look at ourselves: messages to ourselves are delivered at once."""
        if not self._groups[group] >> self.me & 1:
            return None
        others = unpack(self._groups[group] & ~(1 << self.me))
        return next((p for p in others if self._phase_of(group, p) < phase), None)

    def pending(self) -> list[Held]:
        return [
            Held(arrival.content, waits_for, since)
            for arrival, waits_for, since in super().pending()
            if arrival.content.to
        ]

    def read(self, fields: tuple[Any, ...]) -> _Arrival:
        sender, clock, previous, content = fields
        kind = Resynchronisation if len(content) == len(Resynchronisation._fields) else PhasedMessage
        return _Arrival(sender, clock, previous, kind(*content))


def _checked(groups: Iterable[Iterable[int]], n: int) -> list[int]:
    """The groups as bit sets, in an order that is the same at all processes."""
    members = [tuple(group) for group in groups]
    strangers = [p for p in chain.from_iterable(members) if not 0 <= p < n]
    if strangers or not all(members):
        raise LocalProtocolError(f"a group has members out of {n} processes, unlike {members}")
    sets = sorted({pack(group) for group in members})
    for a, b in combinations(sets, 2):
        if (a & b).bit_count() > MOST_SHARED:
            raise LocalProtocolError(
                f"groups {sorted(unpack(a))} and {sorted(unpack(b))} share more than {MOST_SHARED} members, "
                "and concurrent messages of both could wait for each other for ever: use bss-groups"
            )
    return sets
