"""Causal multicast in overlapping groups, a vector per group, after Birman, Schiper & Stephenson (1991, §5).

Assumes    fixed groups that everybody is told alike; a message goes to all present members of one group of
           the sender's, with or without the sender; reliable links, FIFO or not, that may duplicate.
Promises   causal order across the groups: within each, and along chains that lead from one to another.
Leaves out multicasts to anything but a group; processes and groups that come later.
Invariant  per group of ours, that of its GroupVector; per other group, lane s is the clock of the last
           multicast of s to it in our causal past. A message is delivered once, in every group of ours,
           everything its sender knew is.

The paper counts a group's multicasts; here the last one of each member is named by its clock.
"""

from collections.abc import Iterable

from ...core.destinations import pack, unpack
from ...core.effects import Send
from ...core.errors import LocalProtocolError
from ...core.lanes import lanes
from ...core.orders import Order
from ..delay_queue import Want
from ..facts import (
    BROADCAST,
    MULTICAST,
    Assumptions,
    CopyTravel,
    Facts,
    MembershipChanges,
    Names,
    Option,
    Waits,
    WireFormat,
)
from ..holding import HoldingProcess
from ..machine import Effect, MessageKey, Unit
from ..messages import Application
from ..process import State, refusal
from .group_vector import GroupVector

FACTS = Facts(
    name="bss-groups",
    order=Order.CAUSAL,
    description="multicast in fixed, overlapping groups (option `groups`): a vector per group",
    paper="Birman, Schiper & Stephenson, ACM TOCS 9(3), 1991",
    wire=WireFormat(15, "happened.wire.causal:BSS_GROUPS"),
    options=(Option("groups", "the members of each group; by default, one group of everybody", Names.SETS),),
    assumes=Assumptions(casts=frozenset({BROADCAST, MULTICAST}), fixed_groups=True),
    membership=MembershipChanges(joins=False),
    waits=Waits(only_for_past=True),
    copies=CopyTravel(common_frame=True),
)


class GroupsMessage(Application):
    """M(sender, clock), the same for the whole group."""

    group: int  # the number of the group it is for
    pasts: tuple[int, ...]  # per group, lanes: the last multicast of each member before this one
    payload: bytes

    def units(self) -> frozenset[Unit]:
        """What the entries of its own group say of its destinations; who is in the others it does not say."""
        past = lanes(self.n).items(self.pasts[self.group])
        return frozenset((s, t, d) for s, t in past for d in self.to if d != s)

    def size(self) -> tuple[int, int]:
        """An entry for each group and each member that has sent to it."""
        return sum(map(lanes(self.n).occupied, self.pasts)), len(self.units())

    def model_bytes(self) -> int:
        return 4 * self.size()[0]


class GroupVectors(HoldingProcess[GroupsMessage]):
    """One process of the protocol. A lane of its parking is a group and a sender."""

    facts = FACTS
    message_type = GroupsMessage

    def __init__(self, me: int, n: int, *, groups: Iterable[Iterable[int]] | None = None) -> None:
        super().__init__(me, n)
        self._groups = _checked_groups(n, groups)
        self._ours = {g: GroupVector(me, n) for g, members in enumerate(self._groups) if members >> me & 1}
        self._others = [0] * len(self._groups)  # lanes per group; of our own groups, unused

    def address(self, to: Iterable[int], payload: bytes) -> int:
        dests = self.destinations(to, payload)
        self._group_of(dests)
        return dests

    def stamp(self, clock: int, dests: int, payload: bytes) -> list[Effect]:
        group = self._group_of(dests)
        pasts = tuple(self._known(g) for g in range(len(self._groups)))
        message = GroupsMessage(self.me, clock, self.n, dests, group, pasts, payload)
        self._ours[group].send(clock, to_me=bool(dests >> self.me & 1))
        return [Send(d, message) for d in unpack(dests)]

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
        ours = tuple((g, vector.state()) for g, vector in self._ours.items())
        return {"groups": self._groups, "ours": ours, "others": tuple(self._others)}

    def load(self, state: State) -> None:
        groups, others = state["groups"], list(state["others"])
        ours = {g: GroupVector.from_state(self.me, self.n, vector) for g, vector in state["ours"]}
        self._groups, self._ours, self._others = groups, ours, others


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
