"""Causal broadcast with vector clocks, after Birman, Schiper & Stephenson (ACM TOCS 9(3), 1991): `bss`. Their
§5, multicast in overlapping groups, is `bss-groups` below.

Assumes    every present process is addressed, with or without the sender; reliable links, FIFO or not, that
           may duplicate. Processes may leave; none can join, since it would wait for broadcasts that were
           made before it joined and never come.
Promises   causal order.
Leaves out any order between concurrent messages; multicasts to subsets; the view changes that joins need.
Invariant  that of `GroupVector`: a message carries the clock of the last broadcast of each process that its
           sender knew, and is delivered once all those broadcasts are delivered.

The paper counts broadcasts; here the clock of each sender's last broadcast names it, so that a clock may also
tick at other events and a held message can say which messages it waits for.
"""

from abc import abstractmethod
from collections import deque
from collections.abc import Iterable, Iterator

from ...core.destinations import pack, unpack
from ...core.errors import LocalProtocolError
from ...core.lanes import lanes
from ..facts import (
    BROADCAST,
    MULTICAST,
    Assumptions,
    CopyTravel,
    Facts,
    MembershipChanges,
    Option,
    Promises,
    Waits,
    WireFormat,
)
from ..holding import HoldingProcess, ListeningProcess, M, Want
from ..machine import Effect, MessageKey
from ..messages import Application, Entry, broadcasts
from ..process import Process, State, refusal
from ..snapshots import NUMBERS, VECTOR, Part, kept, records, valued


class GroupVector(Part):
    """How far the broadcasts of one group have been delivered, as one member of the group sees it.

    `known` and `reached` differ only for our own broadcasts: other members must wait for each of them, we
    wait only for those addressed to ourselves too, which come back over the network like any message.

    Invariant  lane s of `known` is the clock of the last broadcast of s that we sent or delivered. Lane s of
               `reached` is the greatest clock up to which we have delivered every broadcast of s to us: for
               ourselves, just before the first that is still on its way back, or else the last we sent.
    """

    known: int = kept(VECTOR)
    reached: int = kept(VECTOR)
    _returning: deque[int] = kept(records(int, deque))  # clocks of our broadcasts on their way to ourselves

    def __init__(self, me: int, n: int) -> None:
        self._me = me
        self._lanes = lanes(n)
        self._begin(n)

    def send(self, clock: int, *, to_me: bool) -> None:
        self.known = self._lanes.put(self.known, self._me, clock)
        if to_me:
            self._returning.append(clock)
        self._count_own()

    def deliver(self, sender: int, clock: int) -> None:
        if sender == self._me:
            self._returning.popleft()
            self._count_own()
        else:
            self.known = self._lanes.put(self.known, sender, clock)
            self.reached = self._lanes.put(self.reached, sender, clock)

    def skip(self, sender: int, clock: int) -> None:
        """Treat all broadcasts of this sender up to this clock as delivered."""
        self.reached = self._lanes.put(self.reached, sender, max(clock, self.progress(sender)))

    def progress(self, sender: int) -> int:
        return self._lanes.get(self.reached, sender)

    def is_expected(self, sender: int, clock: int) -> bool:
        """Whether M(sender, clock) may still come; only messages that name us as sender can be unexpected."""
        return sender != self._me or clock in self._returning or clock <= self.progress(sender)

    def has_sent(self, past: int) -> bool:
        """Whether we have made our broadcast that `past` names, or a later one."""
        return self._lanes.get(past, self._me) <= self._lanes.get(self.known, self._me)

    def lacks(self, past: int) -> Want | None:
        """A (sender, clock) in `past` that `reached` does not cover; None if there is none."""
        sender = self._lanes.beyond(past, self.reached)
        return None if sender is None else (sender, self._lanes.get(past, sender))

    def missing(self, past: int) -> Iterator[tuple[int, int]]:
        """For each sender, the last undelivered broadcast to us that `past` requires."""
        for sender, clock in self._lanes.items(self._lanes.newer(past, self.reached)):
            if sender == self._me:
                clock = max(returning for returning in self._returning if returning <= clock)
            yield sender, clock

    def _count_own(self) -> None:
        own = self._returning[0] - 1 if self._returning else self._lanes.get(self.known, self._me)
        self.reached = self._lanes.put(self.reached, self._me, own)


class GroupProcess(ListeningProcess[M]):
    """A process that broadcasts to a fixed group of which it is a member."""

    def __init__(self, me: int, n: int) -> None:
        super().__init__(me, n)
        self._vector = GroupVector(me, n)

    @abstractmethod
    def past(self, message: M) -> int:
        """Lanes: per process, the last broadcast that must be delivered before this message."""

    address = Process.everybody

    def checked(self, message: M) -> M:
        message = super().checked(message)
        if message.n != self.n:
            raise refusal(message, f"comes from a group of {message.n} and ours has {self.n}")
        if not self._vector.has_sent(self.past(message)):
            raise refusal(message, "depends on a message we never sent")
        if not self._vector.is_expected(message.sender, message.clock):
            raise refusal(message, "claims to be ours, and we never sent it to ourselves")
        return message

    def listen(self) -> None:
        super().listen()
        self._vector.send(self.clock, to_me=False)

    def delivered(self, sender: int) -> int:
        return self._vector.progress(sender)

    def reached(self, message: M) -> Want:
        return message.sender, self._vector.progress(message.sender)

    def lacks(self, message: M) -> Want | None:
        return self._vector.lacks(self.past(message))

    def missing(self, message: M) -> Iterable[MessageKey]:
        return self._vector.missing(self.past(message))

    def skip(self, process: int, clock: int) -> Iterable[int]:
        self._vector.skip(process, clock)
        return (process,)

    def learn(self, message: M) -> None:
        self._vector.deliver(message.sender, message.clock)

    def save(self) -> State:
        return super().save() | {"vector": self._vector.state()}

    def load(self, state: State) -> None:
        super().load(state)
        self._vector = GroupVector(self.me, self.n).resume(state["vector"])


class BssMessage(Application):
    entry_bytes, unit_bytes = 4, 0
    past: int  # lanes: the last broadcast of each process before this one
    payload: bytes

    def about(self) -> Iterator[Entry]:
        return broadcasts(lanes(self.n).items(self.past), self.dests)

    def size(self) -> tuple[int, int]:
        """The number of entries is that of the whole vector."""
        return self.n, super().size()[1]


class BirmanSchiperStephenson(GroupProcess[BssMessage]):
    facts = Facts(
        name="bss",
        description="broadcast to a fixed group: one vector clock",
        paper="Birman, Schiper & Stephenson, ACM TOCS 9(3), 1991",
        wire=WireFormat(14, "happened.wire.causal:BSS"),
        assumes=Assumptions(casts=frozenset({BROADCAST})),
        membership=MembershipChanges(joins=False),
        waits=Waits(only_for_past=True),
        promises=Promises(entries=lambda n: n),
        copies=CopyTravel(common_frame=True),
    )
    message_type = BssMessage

    def stamp(self, clock: int, dests: int, payload: bytes) -> list[Effect]:
        message = BssMessage(self.me, clock, self.n, dests, self._vector.known, payload)
        self._vector.send(clock, to_me=bool(dests >> self.me & 1))
        return self.to_each(message, dests)

    def past(self, message: BssMessage) -> int:
        return message.past


class GroupsMessage(Application):
    entry_bytes, unit_bytes = 4, 0
    group: int  # the number of the group that the message is for
    pasts: tuple[int, ...]  # per group, lanes: the last multicast of each member before this one
    payload: bytes

    def about(self) -> Iterator[Entry]:
        """Entries about its own group only; the message does not say who the members of other groups are."""
        return broadcasts(lanes(self.n).items(self.pasts[self.group]), self.dests)

    def size(self) -> tuple[int, int]:
        """An entry for each group and each member that has sent to it."""
        return sum(map(lanes(self.n).occupied, self.pasts)), super().size()[1]


class GroupVectors(HoldingProcess[GroupsMessage]):
    """Causal multicast in overlapping groups (§5): `bss-groups`.

    Assumes    fixed groups, the same for all processes; a message goes to all present members of one of the
               sender's groups, with or without the sender; reliable links, FIFO or not, that may duplicate.
    Promises   causal order across the groups: within each, and along chains that lead from one to another.
    Leaves out multicasts to sets that are no group; processes and groups that are added later.
    Invariant  for a group of ours, the invariant of its `GroupVector`; for another group, lane s is the clock
               of the last multicast of s to it in our causal past. A message is delivered once all earlier
               messages to our groups that its sender knew are delivered. One lane of the delay queue is one
               sender in one group.
    """

    facts = Facts(
        name="bss-groups",
        description="multicast in fixed, overlapping groups (option `groups`): a vector per group",
        paper="Birman, Schiper & Stephenson, ACM TOCS 9(3), 1991",
        wire=WireFormat(15, "happened.wire.causal:BSS_GROUPS"),
        options=(Option.of_sets("groups", "the members of each group; by default, one group of everybody"),),
        assumes=Assumptions(casts=frozenset({BROADCAST, MULTICAST}), fixed_groups=True),
        membership=MembershipChanges(joins=False),
        waits=Waits(only_for_past=True),
        copies=CopyTravel(common_frame=True),
    )
    message_type = GroupsMessage

    _groups: tuple[int, ...] = kept(valued(()))
    _others: list[int] = kept(NUMBERS)  # lanes per group; unused for our own groups

    def __init__(self, me: int, n: int, *, groups: Iterable[Iterable[int]] | None = None) -> None:
        super().__init__(me, n)
        self._groups = _checked_groups(n, groups)
        self._ours = {g: GroupVector(me, n) for g, members in enumerate(self._groups) if members >> me & 1}
        self._others = [0] * len(self._groups)

    def address(self, to: Iterable[int], payload: bytes) -> int:
        dests = self.destinations(to, payload)
        self._group_of(dests)
        return dests

    def stamp(self, clock: int, dests: int, payload: bytes) -> list[Effect]:
        group = self._group_of(dests)
        pasts = tuple(self._known(g) for g in range(len(self._groups)))
        message = GroupsMessage(self.me, clock, self.n, dests, group, pasts, payload)
        self._ours[group].send(clock, to_me=bool(dests >> self.me & 1))
        return self.to_each(message, dests)

    def _group_of(self, dests: int) -> int:
        us, present = 1 << self.me, self.present
        for g in self._ours:
            if (self._groups[g] & present) | us == dests | us:
                return g
        raise LocalProtocolError(f"{sorted(unpack(dests))} is not the rest of a group of process {self.me}")

    def _known(self, group: int) -> int:
        return self._ours[group].known if group in self._ours else self._others[group]

    def checked(self, message: GroupsMessage) -> GroupsMessage:
        message = super().checked(message)
        if message.n != self.n or len(message.pasts) != len(self._groups):
            raise refusal(message, "comes from a system with other groups")
        for members, past in zip(self._groups, message.pasts, strict=True):
            if any(not members >> s & 1 for s, _ in lanes(self.n).items(past)):
                raise refusal(message, "names a message to a group by someone outside it")
        if not all(vector.has_sent(message.pasts[group]) for group, vector in self._ours.items()):
            raise refusal(message, "depends on a message we never sent")
        if message.group not in self._ours or not self._groups[message.group] >> message.sender & 1:
            raise refusal(message, f"is for group {message.group}, which is not ours and its sender's")
        if not self._ours[message.group].is_expected(message.sender, message.clock):
            raise refusal(message, "claims to be ours, and we never sent it to ourselves")
        return message

    def is_duplicate(self, message: GroupsMessage) -> bool:
        progress = self._ours[message.group].progress(message.sender)
        return message.clock <= progress or message in self._parking

    def reached(self, message: GroupsMessage) -> Want:
        group, sender = message.group, message.sender
        return self._lane(group, sender), self._ours[group].progress(sender)

    def _lane(self, group: int, sender: int) -> int:
        return group * self.n + sender

    def lacks(self, message: GroupsMessage) -> Want | None:
        for group, vector in self._ours.items():
            want = vector.lacks(message.pasts[group])
            if want is not None:
                return self._lane(group, want[0]), want[1]
        return None

    def missing(self, message: GroupsMessage) -> Iterable[MessageKey]:
        for group, vector in self._ours.items():
            yield from vector.missing(message.pasts[group])

    def skip(self, process: int, clock: int) -> Iterable[int]:
        for vector in self._ours.values():
            vector.skip(process, clock)
        return [self._lane(group, process) for group in self._ours]

    def learn(self, message: GroupsMessage) -> None:
        self._ours[message.group].deliver(message.sender, message.clock)
        for g, past in enumerate(message.pasts):
            if g not in self._ours:
                self._others[g] = lanes(self.n).maximum(self._others[g], past)

    def save(self) -> State:
        return super().save() | {"ours": tuple((g, vector.state()) for g, vector in self._ours.items())}

    def load(self, state: State) -> None:
        super().load(state)
        self._ours = {g: GroupVector(self.me, self.n).resume(vector) for g, vector in state["ours"]}


def _checked_groups(n: int, groups: Iterable[Iterable[int]] | None) -> tuple[int, ...]:
    if groups is None:
        return ((1 << n) - 1,)
    sets = []
    for group in groups:
        members = tuple(group)
        if not members or not all(0 <= member < n for member in members):
            raise LocalProtocolError(f"{members} is not a group of processes numbered below {n}")
        sets.append(pack(members))
    if not sets or len(set(sets)) < len(sets):
        raise LocalProtocolError("there must be a group, and none twice")
    return tuple(sets)
