"""Who takes part, as the frames of a link tell it: members that join, leave and are expelled.

A frame is a message of the ordering protocol or a change of members (wire/membership.py). A process forwards
each change on all its links before any frame that presumes it. So all processes number members alike, as long
as one process at a time admits them: the *registrar*, the first to have joined of those present.
departures.py has what follows from a departure.

Invariant  `gone` has the indices in `departures`; `awaited` those of them that others say have left, and
           whose own farewell, which follows all their frames, is still to come.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol

from ..core.destinations import pack, unpack
from ..core.errors import LocalProtocolError, RemoteProtocolError
from ..core.roster import Roster
from ..ordering import Facts, Machine
from ..ordering.capabilities import members
from ..wire import membership as wire
from ..wire.membership import (
    LAST_STAGE,
    DepartureStage,
    MemberAbsent,
    MemberDeparted,
    MemberExpelled,
    MemberJoined,
    MemberRanked,
)
from .batch import Hear, Input
from .departures import FREE, Departure, Departures
from .handshake import check_name
from .link import Links

NewsHeard = Callable[[int, Any], object]
"""Takes news from a link: a change of members, or news of a layer that uses the same frames."""


class Concerned(Protocol):
    """The part of a kernel that changes of members concern."""

    machine: Machine
    links: Links
    replays: bool  # whether the current input is being replayed
    inputs: dict[int, Callable[[int, bytes], object]]
    frames: dict[int, Hear]
    joining: list[Callable[[int], None]]
    joined: list[Callable[[int], None]]
    left: list[Callable[[int], None]]
    steps: dict[str, Callable[[], None]]

    def stage(self, kind: int, number: int, *data: bytes) -> None: ...
    def perform(self, effects: Sequence[Any]) -> None: ...


class MemberChanges:
    """The members as process `name` sees them; `kernel` is told of their changes."""

    def __init__(self, name: str, members: Sequence[str], facts: Facts, kernel: Concerned) -> None:
        self._facts, self._kernel = facts, kernel
        self.roster = Roster(members)
        self.name = name
        self.me = self.roster.index(name)
        self.addresses: dict[str, str] = {}  # of the members that joined at run time
        self.seniority = list(range(len(members)))  # indices in the order of joining
        self.joined = 0  # how many members have joined since this object was made
        self.incarnations: dict[int, bytes] = {}  # by index, those of the peers' journals that we have met
        self.gone: set[int] = set()  # members that left or were expelled
        self.awaited: set[int] = set()
        self.departures = Departures()
        # By recycled index, the processes that have not told us so yet: they still mean its earlier owner.
        self.unaware: dict[int, set[int]] = {}
        self.has_left = False  # or was expelled; then no process takes our messages any more
        self.farewells: set[int] = set()  # the links on which nothing more will come, as we have left
        self._last_words: dict[int, int] = {}  # the number of our farewell on each link, once we have left
        # Since this object was made. A process that just joined under an old index may take itself for the
        # registrar until it hears its rank; one that has admitted somebody is the registrar until it leaves.
        self._has_admitted = False
        self.news: dict[type, NewsHeard] = {}
        self.may_leave: list[Callable[[], None]] = []  # raise LocalProtocolError while we may not leave
        self.keeps_indices: list[Callable[[], bool]] = []  # whether indices must not be recycled now

    def attach(self) -> None:
        kernel = self._kernel
        kernel.frames[wire.MARK] = self.hear
        kernel.inputs[Input.MEMBER_ADMITTED] = self._admit_again
        for kind in (Input.MEMBER_DEPARTED, Input.MEMBER_EXPELLED):
            kernel.inputs[kind] = lambda index, data: self.depart(self.roster.name(index))
        self.news = {
            MemberJoined: self._hear_joined,
            MemberDeparted: self._hear_departed,
            MemberExpelled: self._hear_expelled,
            MemberAbsent: self._hear_absent,
            MemberRanked: self._hear_ranked,
            DepartureStage: self._hear_stage,
        }

    @property
    def registrar(self) -> int:
        """The present member that joined first: the only one that admits others."""
        return next(index for index in self.seniority if index not in self.gone)

    def present_links(self) -> list[int]:
        return [link for link in self._kernel.links.outboxes if link not in self.gone]

    def takes_messages(self, to: int) -> bool:
        """Whether the machine's frames for a process are put on its link, even after it has gone."""
        return to not in self.gone or to in self.awaited

    def _listeners(self) -> list[int]:
        """The links that a change is told on: of present processes, and of departed ones we still answer."""
        return [link for link in self._kernel.links.outboxes if self.takes_messages(link)]

    def _tell(self, links: Iterable[int], news: Any, besides: int | None = None) -> None:
        frame = wire.encode(news)
        for link in links:
            if link != besides:
                self._kernel.links.put(link, frame)

    # Changes that this process makes.

    def admit(self, name: str, address: str) -> int:
        """Admit a process as the registrar; returns its index."""
        if self.registrar != self.me:
            raise LocalProtocolError(
                f"{self.roster.name(self.registrar)!r} admits new members, so that all are numbered alike"
            )
        if name in self.roster.ever():
            raise LocalProtocolError(f"{name!r} is or was a member: a process that joins needs a new name")
        if any(each.expelled and not each.closed for each in self.departures.values()):
            raise LocalProtocolError(
                "somebody was expelled who may have admitted others; try again when everybody has heard of it"
            )
        recycles = self._facts.membership.recycles and not any(keeps() for keeps in self.keeps_indices)
        free = self.departures.free(self.present_links()) if recycles else None
        most = self._facts.assumes.most_processes
        if len(self.roster) >= most and free is None:
            raise LocalProtocolError(f"there were {most} members already, which is the limit")
        index = len(self.roster) if free is None else free
        self.join(index, name, address)
        self._has_admitted = True
        self._kernel.stage(Input.MEMBER_ADMITTED, 0, name.encode(), b"\0", address.encode())
        return index

    def _admit_again(self, number: int, data: bytes) -> None:
        name, _, address = data.partition(b"\0")
        self.admit(name.decode(), address.decode())

    def depart(self, name: str) -> None:
        """Leave, and say farewell on every link; or expel another process."""
        # A present member of this name, or one whose farewell has not come.
        leaving = [index for index in self.awaited if self.roster.name(index) == name]
        index = leaving[0] if leaving else self.roster.index(name)
        if index != self.me:
            self._facts.check_expulsion(name)
            self._check_one_expulsion(name)
            self._leave(index, MemberExpelled(index))
            self._kernel.stage(Input.MEMBER_EXPELLED, index)
            self.advance()
        elif not self.has_left:
            for check in self.may_leave:
                check()
            self._leave_ourselves(index)
            self._kernel.stage(Input.MEMBER_DEPARTED, index)

    def _leave_ourselves(self, index: int) -> None:
        self._kernel.perform(members(self._kernel.machine).leave(index))  # raises if members are fixed
        for note in self._kernel.left:
            note(index)
        self._tell(self.present_links(), MemberDeparted(index))
        outboxes = self._kernel.links.outboxes
        self._last_words = {link: outboxes[link].last for link in self.present_links()}
        self.has_left = True

    def _check_one_expulsion(self, name: str) -> None:
        """Refuse to expel another process before everybody has closed with the one expelled before, where the
        order of others' messages could be lost with both."""
        open_ones = [p for p, each in sorted(self.departures.items()) if each.expelled and each.stage < 2]
        if not self._facts.membership.expels_one or not open_ones:
            return
        behind = [
            self.roster.name(link)
            for link in self.present_links()
            if any(self.departures[p].said.get(link, 0) < 1 for p in open_ones)
        ]
        raise LocalProtocolError(
            f"{name!r} cannot be expelled yet: {self.roster.name(open_ones[0])!r} was, and not everybody has "
            f"closed with it ({', '.join(behind) or 'we have not'}). Messages of {self._facts.name} do not "
            "tell enough to keep their order if both are gone at once. Try again; start again from its "
            "journal whoever does not answer"
        )

    def has_parted(self, link: int) -> bool:
        """Whether a process knows that we have left, and has all frames that we sent it before. Frames that
        we have forwarded since, of processes that did not know yet, it may never take."""
        outbox = self._kernel.links.outboxes[link]
        return link in self.farewells and outbox.acknowledged >= self._last_words.get(link, outbox.last)

    # Changes that others tell.

    def hear(self, link: int, frame: bytes) -> None:
        """Take a change of members from a link. RemoteProtocolError: refused, and nothing has changed."""
        change = wire.decode(frame)
        if self.departures.means_somebody_else(link, change.index):
            return
        if link in self.unaware.get(change.index, ()) and not isinstance(change, MemberJoined):
            return
        hear = self.news.get(type(change))
        if hear is None:
            raise RemoteProtocolError(f"process {link} sends {type(change).__name__}, which is not used here")
        hear(link, change)

    def check_known(self, link: int, index: int) -> None:
        if index >= len(self.roster):
            raise _disagreement(link, index, "")

    def _hear_ranked(self, link: int, change: MemberRanked) -> None:
        self.check_known(link, change.index)
        self._rank_last(change.index)

    def _hear_stage(self, link: int, change: DepartureStage) -> None:
        if change.index in self.gone:
            self.departures[change.index].said[link] = change.stage

    def _hear_joined(self, link: int, change: MemberJoined) -> None:
        index, name, address = change.index, change.name, change.address
        try:
            check_name(name)
        except LocalProtocolError as error:
            raise RemoteProtocolError(f"not a change of members: {error}") from error
        known = len(self.roster)
        is_free = index in self.gone and self.departures[index].stage >= LAST_STAGE
        if name not in self.roster.ever() and (
            index == known < self._facts.assumes.most_processes or is_free
        ):
            is_registrar = self._has_admitted and not self.has_left and not self._kernel.replays
            # The registrar before this one may have admitted somebody, until all its frames are here.
            if is_registrar and all(each.closed for each in self.departures.values()):
                raise RemoteProtocolError(
                    f"process {link} says that {name!r} was admitted, and only {self.name!r} admits"
                )
            self.join(index, name, address)
        elif index >= known or self.roster.name(index) != name:
            if self.has_left:
                return
            raise _disagreement(link, index, name)
        self.unaware.get(index, set()).discard(link)

    def _is_farewell(self, link: int, index: int) -> bool:
        """Whether a process that tells of this departure thereby says that it has heard of ours."""
        self.check_known(link, index)
        if index == self.me:
            self.farewells.add(link)
            self.has_left = True
        return index == self.me

    def _hear_departed(self, link: int, change: MemberDeparted) -> None:
        index = change.index
        if self._is_farewell(link, index):
            return
        if index not in self.gone:
            self.awaited.add(index)  # its frames from before it left may still be on their way to us
            self._leave(index, MemberDeparted(index))
        departure = self.departures[index]
        departure.heard.add(link)
        if index == link and not departure.parted:
            departure.parted = True
            self.awaited.discard(index)
            self._tell((index,), MemberDeparted(index))  # this is our last frame to it

    def _hear_expelled(self, link: int, change: MemberExpelled) -> None:
        index = change.index
        if self._is_farewell(link, index):
            return
        departure = self.departures.get(index)
        if departure is None or not (departure.expelled or departure.closed):
            self._leave(index, MemberExpelled(index))
        self.departures[index].heard.add(link)

    def _hear_absent(self, link: int, change: MemberAbsent) -> None:
        index = change.index
        self.check_known(link, index)
        if index not in self.gone:
            self._leave(index, MemberDeparted(index))
        self.awaited.discard(index)
        self.departures[index].expelled = False

    # Effects of these changes.

    def join(self, index: int, name: str, address: str) -> None:
        """Take a process in, tell everybody, and tell the process who is there."""
        admits = self.registrar == self.me
        news = MemberJoined(index, name, address)
        wire.encode(news)  # raises if it is too long
        effects = members(self._kernel.machine).join(index)  # raises if members are fixed; nothing changed
        self.roster.join(name, index)
        for note in self._kernel.joining:
            note(index)
        if index in self.gone:
            # Frames of those who joined after the others had told stage 3 may still be on their way to us.
            for unaware in self.unaware.values():
                unaware.discard(index)
            self.unaware[index] = set(self.present_links())
            self.gone.discard(index)
            self.farewells.discard(index)
            self.departures.give_again(index)
            self._note_under_way()
        self._tell(self._listeners(), news, besides=index)
        self.addresses[name] = address
        self.joined += 1
        self._kernel.links.open(index)
        self.incarnations.pop(index, None)
        self._rank_last(index)
        self._introduce(index, admits=admits)
        self._kernel.perform(effects)
        for note in self._kernel.joined:
            note(index)

    def _introduce(self, newcomer: int, *, admits: bool) -> None:
        """Tell a newcomer which members have gone and, if we admit it, in which order the others joined."""
        for gone in sorted(self.gone):
            self._tell((newcomer,), self._news_of(gone, admits=admits))
            if stage := self.departures[gone].stage:
                self._tell((newcomer,), DepartureStage(gone, min(stage, LAST_STAGE)))
        if admits and self.seniority != sorted(self.seniority):
            for each in self.seniority:
                self._tell((newcomer,), MemberRanked(each))
        if self.has_left:  # the newcomer was admitted meanwhile, and waits for our farewell like the others
            self._tell((newcomer,), MemberDeparted(self.me))

    def _news_of(self, gone: int, *, admits: bool) -> MemberAbsent | MemberDeparted | MemberExpelled:
        """What to tell a newcomer of a process that has gone. It has sent the newcomer nothing if we are the
        one who admits the newcomer, and also if its farewell came before we heard of the newcomer: had it
        known the newcomer when it left, it would have told us on the same link, before its farewell."""
        expelled = self.departures[gone].expelled
        if admits or (self.departures[gone].closed and not expelled):
            return MemberAbsent(gone)
        return MemberExpelled(gone) if expelled else MemberDeparted(gone)

    def _rank_last(self, index: int) -> None:
        self.seniority = [each for each in self.seniority if each != index] + [index]

    def _leave(self, index: int, news: MemberDeparted | MemberExpelled) -> None:
        """Note that a process has left or was expelled, or that a leaving one is expelled; tell everybody."""
        machine, effects = self._kernel.machine, []
        departure = self.departures.get(index)
        is_expelled = isinstance(news, MemberExpelled)
        if departure is None:
            effects = members(machine).leave(index)
            departure = self._note_left(index)
        if is_expelled:
            effects += members(machine).expel(index)
        self._tell(self._listeners(), news, besides=index)
        if is_expelled:
            departure.expelled = departure.parted = True
            self.awaited.discard(index)
            self._tell((index,), MemberDeparted(index))  # if it is alive after all, it learns of it
        self._note_under_way()
        self._kernel.perform(effects)
        for note in self._kernel.left:
            note(index)

    def _note_left(self, index: int) -> Departure:
        self.roster.leave(self.roster.name(index))
        self.gone.add(index)
        self.departures[index] = departure = Departure()
        return departure

    def _note_under_way(self) -> None:
        """While a departure is under way, check after each frame whether one can advance."""
        if self.departures.under_way():
            self._kernel.steps["departures"] = self.advance
        else:
            self._kernel.steps.pop("departures", None)

    def note_gone(self, index: int) -> None:
        """Note that no frame of this process is on its way, or expected, any more."""
        departure = self._note_left(index)
        departure.closed, departure.parted, departure.stage = True, True, FREE

    def do_without(self, departed: int) -> None:
        """Go on without this set of processes; no frames of theirs are on their way."""
        for index in unpack(departed & ~pack(self.gone)):
            if index == self.me:
                self.has_left = True
                continue
            self._kernel.perform(members(self._kernel.machine).leave(index))
            self._kernel.perform(members(self._kernel.machine).close(index))
            self.note_gone(index)

    def advance(self) -> None:
        present, machine = self.present_links(), self._kernel.machine
        for index in self.departures.to_close(self.awaited, present):
            self.departures[index].closed = True
            self._kernel.perform(members(machine).close(index))
        for index in self.departures.under_way():
            departure = self.departures[index]
            if departure.closed and not departure.stage:
                # Messages of the departed process may still be held here, waiting for others.
                held = machine.pending() if machine.pending_count else ()
                if all(each.message.sender != index for each in held):
                    self._reach(index, 1)
            while departure.advances(present):
                if departure.stage == 1:
                    members(machine).forget(index)
                self._reach(index, departure.stage + 1)
        self._note_under_way()

    def _reach(self, index: int, stage: int) -> None:
        self.departures[index].stage = stage
        if stage <= LAST_STAGE:
            self._tell(self.present_links(), DepartureStage(index, stage))
        elif self.departures[index].expelled and self._kernel.links.has_much(index):
            # With its farewell: if the process is alive after all, it is refused when it calls.
            self._kernel.links.empty(index)

    # Snapshots: the entries of a snapshot's header.

    def state(self) -> dict[str, Any]:
        return {
            "members": list(map(self.roster.name, range(len(self.roster)))),
            "gone": sorted(self.gone),
            "farewells": sorted(self.farewells),
            "left": self.has_left,
            "addresses": self.addresses,
            "incarnations": {link: each.hex() for link, each in self.incarnations.items()},
            "awaited": sorted(self.awaited),
            "departures": {index: each.state() for index, each in sorted(self.departures.items())},
            "seniority": self.seniority,
            "former": sorted(self.roster.former),
            "last_words": sorted(self._last_words.items()),
            "unaware": {index: sorted(links) for index, links in sorted(self.unaware.items()) if links},
        }

    def restore(self, head: dict[str, Any]) -> None:
        self.roster = Roster(head["members"])
        self.gone, self.farewells = set(head["gone"]), set(head["farewells"])
        self.awaited = set(head["awaited"])
        self._last_words = dict(head["last_words"])
        self.has_left = head["left"]
        self.unaware = {int(index): set(links) for index, links in head["unaware"].items()}
        self.roster.remember(head["former"])
        self.seniority = head["seniority"]
        self.departures = Departures()
        for index in head["gone"]:
            self.roster.leave(self.roster.name(index))
            self.departures[index] = Departure.from_state(head["departures"][str(index)])
        self._note_under_way()
        self.addresses = head["addresses"]
        self.incarnations = {int(k): bytes.fromhex(each) for k, each in head["incarnations"].items()}


def _disagreement(link: int, index: int, name: str) -> RemoteProtocolError:
    return RemoteProtocolError(
        f"process {link} says that {name!r} is process {index}, and we disagree: "
        "let one process at a time admit members"
    )
