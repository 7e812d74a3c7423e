"""All the state of a node that must survive it, as a function of its inputs.

Assumes    inputs are given one at a time; the machine of the ordering protocol is deterministic.
Promises   the same inputs in the same order give the same state, byte for byte the same frames under the
           same link numbers, the same deliveries under the same numbers and the same trace. So a journal
           of inputs (inputs.py) is a journal of everything: `replay` of its entries restores what was lost.
           An input that is refused changes nothing and is not in the journal.
Tracking   With a tracker (tracked.py), messages carry its piggybacks. They are made at a multicast and taken
           in at a delivery; what it tells of relevant and null events is in the trace.
Invariant  event `events` is the last one of the machine's own numbering (ordering/machine.py). Link p's
           outbox is numbered by `link.py`. A delivery keeps its number, from 1, until it is acknowledged.

Members    A frame is a message of the ordering protocol or a change of members (wire/membership.py). A node
           forwards each change on all its links before anything that presumes it, so members are numbered
           alike everywhere as long as one process at a time admits them: of those present the first to have
           joined, which is called the *registrar*. What follows from a departure is in departures.py.
Token      Where sends must be serialized, a process multicasts in its turn: serialized.py.
Unordered  Messages outside of all orders pass the machine by, which only counts them: unordered.py.
Site       Where a topology says who takes part, it changes as a whole: site_changes.py.
"""

import json
import sys
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol, cast

from ..core.destinations import pack, unpack
from ..core.effects import Deliver, Send
from ..core.errors import CausalityError, LocalProtocolError, RemoteProtocolError
from ..core.places import senders_by_link
from ..core.roster import Roster
from ..ordering import Held, Machine, Multicast, create, facts_of
from ..tracking import Stamp
from ..wire import decode, encode_multicast, resent, site_news, token_frames
from ..wire import membership as changes
from ..wire import unordered_message as unordered_wire
from ..wire.membership import (
    LAST_STAGE,
    DepartureStage,
    MemberAbsent,
    MemberDeparted,
    MemberExpelled,
    MemberJoined,
    MemberLeft,
    MemberRanked,
)
from ..wire.unordered_message import UnorderedMessage
from .departures import FREE, Departure, Departures
from .errors import EngineFault
from .handshake import check_name
from .inputs import HEAD, Input, read_entries
from .link import Inbox, Outbox
from .qualified import PLAIN, How, attributes, from_bytes, history_to_json, to_bytes
from .serialized import Serialization
from .site import Site
from .site_changes import SiteChanges, Steps
from .site_failures import How as Inheritance
from .site_failures import Succession
from .speakers import check_admission, check_timestamp
from .tracked import MARK as TRACKED_MARK
from .tracked import Tracking, refuse_piggybacks
from .unordered import check_arrival, check_destinations, next_hops

# Looked up once: a member of an Enum costs a call of Python code, and these are needed for every message.
CHANGE_MARK, UNORDERED_MARK, TOKEN_MARK = changes.MARK, unordered_wire.MARK, token_frames.MARK
MULTICAST, FRAME_RECEIVED = Input.MULTICAST, Input.FRAME_RECEIVED
DELIVERY_ACKED, FRAMES_FREED = Input.DELIVERY_ACKED, Input.FRAMES_FREED


class Delivery(NamedTuple):
    """One hand-over to the application: its own number, then the message's name and payload."""

    number: int
    sender: int
    clock: int
    payload: bytes
    history: str = ""  # that comes with it, where the application manages histories


class Recorder(Protocol):
    """Takes the events of the trace; see trace_recorder.py."""

    def sent(self, seq: int, time: int, clock: int, to: Iterable[int], messages: Sequence[Any]) -> None: ...
    def sent_unordered(
        self, seq: int, time: int, clock: int, to: Iterable[int], attributes: dict[str, str] | None = None
    ) -> None: ...
    def received(self, seq: int, time: int, message: Any) -> None: ...
    def delivered(self, seq: int, time: int, sender: int, clock: int) -> None: ...
    def relevant(self, seq: int, time: int, tracker: str, stamp: Stamp, label: str) -> None: ...


class Batch(NamedTuple):
    """Inputs that become durable together, and what others and the application may see once they are."""

    entries: bytes
    time: int  # ns, of the last input
    released_through: dict[int, int]  # per link: our frames up to this number may leave
    received_through: dict[int, int]  # per link: its frames up to this number may be acknowledged
    deliveries: list[Delivery]
    shared: Sequence[tuple[bytes, dict[int, int]]] = ()
    """Frames sent, in order, each with its link number on every link that has it; only if the engine
    `shares`. A replay has none: what it makes again is left to the links."""


class Engine:
    """The durable state of the process `name`; `journaled=False` keeps no entries. `tracker` is a tracking
    protocol's name, None for none; `site` is where the process stands, if a topology says so."""

    def __init__(
        self,
        name: str,
        members: Sequence[str],
        protocol: str,
        options: Mapping[str, Any] | None = None,
        recorder: Recorder | None = None,
        journaled: bool = True,
        tracker: str | None = None,
        site: Site | None = None,
    ) -> None:
        self.name = name
        self.protocol = protocol
        facts = facts_of(protocol)
        self._facts = facts
        self._most = facts.most_processes
        if len(members) > self._most:
            raise LocalProtocolError(f"{len(members)} members; messages of {protocol} can name {self._most}")
        self.roster = Roster(members)
        self.me = self.roster.index(name)
        self.addresses: dict[str, str] = {}  # of those who joined at run time
        self.seniority = list(range(len(members)))  # indices in the order of joining
        self.joined = 0  # how many that were, since this object was made
        self.sites = None if site is None else SiteChanges(site, self._steps())
        placed = dict(options or {}) | ({} if site is None else {"place": site.place})
        # Where we stand on the routes, and per link the set of processes whose messages are routed over it;
        # None: everybody sends directly.
        self._place = placed.get("place")
        self._senders = senders_by_link(placed["place"]) if "place" in placed else None
        self.machine: Machine = create(protocol, self.me, len(members), **placed)
        self.serialization: Serialization | None = None
        if facts.serialized:
            self.serialization = Serialization(cast(Any, self.machine), self.me, len(members), self._put)
        self.tracking = None if tracker is None else Tracking(tracker, self.me, len(members), facts)
        self.outboxes = {p: Outbox() for p in range(len(members)) if p != self.me}
        self.inboxes = {p: Inbox() for p in self.outboxes}
        self.incarnations: dict[int, bytes] = {}
        self.recorder = recorder
        self.history: Any = None  # of our last multicast, where the application manages histories
        self.events = 0
        self.time = 0  # ns, of the input at hand
        self.sent = 0  # multicasts
        self.delivered = 0  # the number of the last delivery
        self.unacknowledged: dict[int, Delivery] = {}
        self.unacknowledged_bytes = 0
        self.gone: set[int] = set()  # who has left or was expelled
        self.awaited: set[int] = set()  # of those, by what others say, and its own farewell is still to come
        self.departures = Departures()  # of everybody in `gone`
        self._under_way: list[int] = []  # of those, the ones that others or we have not done with
        self.has_left = False  # or was expelled: nobody takes our messages any more
        self.farewells: set[int] = set()  # the links on which nothing more will come, since we have left
        # Per link, messages that wait for others: counted only where pausing that link makes progress.
        self.held_on_link = dict.fromkeys(self.outboxes, 0)
        self._counts_held = facts.waits_only_for_past
        self.held_bytes = 0  # of their payloads
        self.full_above = sys.maxsize  # bytes of an outbox
        self.full: set[int] = set()  # the links whose outboxes have more
        # Sizes of our newest multicasts: of those that the protocol keeps back.
        self._unsent: deque[int] = deque()
        self.queued_bytes = 0  # of their payloads
        # Since this object was made. Who has just joined under an old index may take itself for the registrar
        # until it hears its rank; who has admitted somebody is it, until it leaves.
        self._has_admitted = False
        self._journaled = journaled  # otherwise nobody reads the entries
        self._replays = False
        self._entries: list[bytes] = []
        self.staged = 0  # bytes of entries since the last cut
        self.is_dirty = False  # whether there were inputs since the last cut
        self._fresh: list[Delivery] = []  # deliveries since the last cut
        self.shares = False  # whether a medium carries what is the same on several links
        self._shared: list[tuple[bytes, dict[int, int]]] = []  # since the last cut
        self._out: set[int] = set()  # links on which we have sent since the last cut
        self._in: set[int] = set()  # links on which frames have come since then
        if site is not None:
            self._without(site.departed)

    # Inputs.

    def multicast(self, to: Sequence[int], payload: bytes, how: How = PLAIN) -> int:
        """Multicast a payload of the application; returns the clock that names the message. `how` is what
        an incomplete order takes besides."""
        if not self.has_turn:
            raise LocalProtocolError(f"{self.name!r} does not have the token; wait until there is room")
        if self._facts.qualifier:
            return self._multicast_qualified(to, payload, how)
        return self._multicast(to, payload)

    def _multicast_qualified(self, to: Sequence[int], payload: bytes, how: How) -> int:
        self._check_may_send()
        clock, effects = cast(Any, self.machine).multicast(to, payload, **how)
        if self._facts.qualifier == "after":
            self.history = cast(Any, self.machine).history_of(self.me, clock)
        dests = pack(to)
        head = to_bytes(dests, how)
        self._stage(Input.QUALIFIED, len(head), head, payload)
        self.events += 1
        self.sent += 1
        if self.recorder is not None:
            told = attributes(self._facts, how, self.roster.name)
            self.recorder.sent_unordered(self.events, self.time, clock, unpack(dests), told)
        self._perform(effects)
        return int(clock)

    def _multicast(self, to: Sequence[int], payload: bytes) -> int:
        """The same whoever has the token, as versions up to 0.2.0 did that knew of none."""
        self._check_may_send()
        if self.tracking is None:
            clock, effects = self.machine.multicast(to, payload)
        else:
            clock, effects = self._multicast_tracked(self.tracking, to, payload)
        dests = pack(to)
        if self.sites is not None:
            self.sites.tally.sent.update(unpack(dests))
        size = (dests.bit_length() + 7) // 8
        self._stage(MULTICAST, size, dests.to_bytes(size, "little"), payload)
        self._unsent.append(len(payload))
        self.queued_bytes += len(payload)
        self._drop_sent()
        self.events += 1
        self.sent += 1
        if self.recorder is not None:
            messages = [effect.message for effect in effects if isinstance(effect, Send)]
            self.recorder.sent(self.events, self.time, clock, unpack(dests), messages)
        self._perform(effects)
        return clock

    def _check_may_send(self) -> None:
        if self.has_left:
            raise LocalProtocolError(f"{self.name!r} has left the others, or they have expelled it")
        if self.sites is not None and self.sites.change is not None:
            raise LocalProtocolError("the topology is changing; wait until there is room")

    @property
    def has_turn(self) -> bool:
        """Whether this process may multicast now, as far as the token is concerned."""
        return self.serialization is None or self.serialization.token.has_turn

    def want_token(self) -> None:
        """Ask for a turn to send, where sends must be serialized."""
        assert self.serialization is not None
        self._check_may_send()
        self.serialization.want()
        self._stage(Input.TOKEN_WANTED, 0)

    def release_token(self, *, away: bool = False) -> None:
        """End our turn. `away`: we shall not hear who asks for the token next."""
        assert self.serialization is not None
        self.serialization.release(away=away)
        self._stage(Input.TOKEN_RELEASED, int(away))

    def multicast_unordered(self, to: Sequence[int], payload: bytes) -> int:
        """The same outside of all orders (unordered.py)."""
        self._check_may_send()
        unordered_wire.check_payload(payload)
        dests = pack(to)
        check_destinations(dests, len(self.roster), self.gone)
        clock = self.machine.tick()
        size = (dests.bit_length() + 7) // 8
        self._stage(Input.UNORDERED, size, dests.to_bytes(size, "little"), payload)
        self.events += 1
        self.sent += 1
        if self.recorder is not None:
            self.recorder.sent_unordered(self.events, self.time, clock, unpack(dests))
        self._spread(UnorderedMessage(len(self.roster), self.me, clock, dests, payload))
        return clock

    def _receive_unordered(self, link: int, frame: bytes) -> None:
        message = unordered_wire.decode(frame)
        check_arrival(message, link, self.me, len(self.roster), self._place)
        self._check_route(link, message.sender)
        self._spread(message)

    def _spread(self, message: UnorderedMessage) -> None:
        """Send an unordered message on, and deliver it if it is for us."""
        for link in next_hops(message, self.me, self._place):
            self._put(link, unordered_wire.encode(message))
        if message.dests >> self.me & 1:
            self.machine.tick()
            self._hand_over(message.sender, message.clock, message.payload)

    def _check_route(self, link: int, sender: int) -> None:
        if self._senders is not None and not self._senders.get(link, 0) >> sender & 1:
            raise RemoteProtocolError(
                f"a message of process {sender} comes over the link with process {link}, which "
                "its route does not use"
            )

    def _multicast_tracked(self, tracking: Tracking, to: Sequence[int], payload: bytes) -> Multicast:
        mark = tracking.mark()
        try:
            sealed, forced = tracking.wrap(to, payload, self.roster)
            done = self.machine.multicast(to, sealed)
        except LocalProtocolError:
            tracking.rewind(mark)
            raise
        if forced is not None:  # it happened before the send; the machine only counts it
            self._relevant(tracking, forced, "null event")
        return done

    def relevant(self, label: str) -> Stamp:
        """Record a relevant event of the application; returns what the tracker tells of it."""
        if self.tracking is None:
            raise LocalProtocolError(
                f'{self.name!r} has no tracker: give one, as in Node(…, tracker="p3-reduced"), on every node'
            )
        stamp = self.tracking.relevant(self.roster)
        self._stage(Input.RELEVANT_EVENT, 0, label.encode())
        self._relevant(self.tracking, stamp, label)
        return stamp

    def _relevant(self, tracking: Tracking, stamp: Stamp, label: str) -> None:
        self.machine.tick()
        self.events += 1
        if self.recorder is not None:
            self.recorder.relevant(self.events, self.time, tracking.name, stamp, label)

    def expire(self) -> None:
        """A time has passed since the last call in which every message is delivered (expiry.py)."""
        if not self._facts.expires:
            raise LocalProtocolError(f"{self.protocol} forgets nothing by the clock")
        cast(Any, self.machine).expire()
        self._stage(Input.EXPIRED, 0)

    def receive(self, link: int, frame: bytes) -> None:
        """Take the next frame of a link. RemoteProtocolError: it is refused, and nothing has changed."""
        if self.sites is not None and link in self.sites.failed:
            raise RemoteProtocolError(f"{self.roster.name(link)!r} was declared to have failed for good")
        if link in self.gone and self.departures[link].expelled:
            pass  # it may not have heard that nobody listens
        elif frame and frame[0] == CHANGE_MARK:
            if self.sites is not None and frame.startswith(site_news.HEAD):
                self.sites.hear(link, frame)
            elif self.sites is not None and frame.startswith(resent.HEAD):
                self._receive_resent(self.sites, link, frame)
            else:
                self._change_members(link, frame)
        elif frame and frame[0] == UNORDERED_MARK:
            self._receive_unordered(link, frame)
        elif self.serialization is not None and frame and frame[0] == TOKEN_MARK:
            self.serialization.hear(link, frame)
        else:
            tracking, inner = self.tracking, frame
            if tracking is not None:
                inner = tracking.unframe(frame)
            elif frame and frame[0] == TRACKED_MARK:
                raise refuse_piggybacks(frame)
            message, size = decode(inner)
            if size != len(inner):
                raise RemoteProtocolError(f"{len(inner) - size} bytes follow the end of a frame")
            if message.via is not None and message.via != link:
                raise RemoteProtocolError(f"a message of process {message.via} comes from process {link}")
            self._check_route(link, message.sender)
            if tracking is not None:
                tracking.check(message)
            if not self._replays:
                check_timestamp(getattr(message, "timestamp", 0), self.time)
            effects = self.machine.receive(message)
            self._arrived(message)
            if self.sites is not None:
                number = self.inboxes[link].received_through + 1
                self.sites.witnessing.arrived(link, message, frame, number)
            if self._counts_held:
                self.held_on_link[link] += 1
                self.held_bytes += len(message.payload)
            if self._unsent:
                self._drop_sent()
            if len(effects) == 1 and type(effects[0]) is Deliver:
                self._deliver(effects[0])
            else:
                self._perform(effects)
        if self._under_way:
            self._advance()
        if self.sites is not None and self.sites.change is not None:
            self.sites.advance()
        self._stage(FRAME_RECEIVED, link, frame)
        self.inboxes[link].received_through += 1
        self._in.add(link)

    def _drop_sent(self) -> None:
        """Keep the sizes of multicasts that have not left: a protocol that keeps some back does so with the
        newest."""
        queued = self.machine.queued
        while len(self._unsent) > queued:
            self.queued_bytes -= self._unsent.popleft()

    def acknowledge(self, number: int) -> bool:
        """Note that the application has acknowledged a delivery; False if it had done so before."""
        if not self.forget(number):
            return False
        self._stage(DELIVERY_ACKED, number)
        return True

    def forget(self, number: int) -> bool:
        """Drop an unacknowledged delivery without an entry, for a node that has no journal."""
        delivery = self.unacknowledged.pop(number, None)
        if delivery is not None:
            self.unacknowledged_bytes -= len(delivery.payload)
        return delivery is not None

    def remember(self, delivery: Delivery) -> None:
        """Take back what `forget` dropped: it is to be delivered again."""
        self.unacknowledged[delivery.number] = delivery
        self.unacknowledged_bytes += len(delivery.payload)

    @property
    def acknowledged(self) -> int:
        """The number up to which all deliveries are acknowledged."""
        return min(self.unacknowledged, default=self.delivered + 1) - 1

    def free(self, link: int, number: int) -> bool:
        """Drop our frames up to this link number, which the peer has; False if they were dropped before."""
        outbox = self.outboxes[link]
        if number <= outbox.acknowledged:
            return False
        outbox.acknowledge(number)
        if outbox.bytes <= self.full_above:
            self.full.discard(link)
        self._stage(FRAMES_FREED, link, number.to_bytes(8, "big"))
        return True

    def join(self, name: str, address: str) -> int:
        """Admit a process as the registrar; returns its index."""
        if self.registrar != self.me:
            raise LocalProtocolError(
                f"{self.roster.name(self.registrar)!r} admits new members, so that all are numbered alike"
            )
        if name in self._names_ever():
            raise LocalProtocolError(f"{name!r} is or was a member: a process that joins needs a new name")
        if any(each.expelled and not each.closed for each in self.departures.values()):
            raise LocalProtocolError(
                "somebody was expelled who may have admitted others; try again when everybody has heard of it"
            )
        recycles = self._facts.recycles and self.tracking is None  # whose timestamps name everybody for ever
        free = self.departures.free(self.present_links()) if recycles else None
        if len(self.roster) >= self._most and free is None:
            raise LocalProtocolError(f"there were {self._most} members already, which is the limit")
        index = len(self.roster) if free is None else free
        self._join(index, name, address)
        self._has_admitted = True
        self._stage(Input.MEMBER_ADMITTED, 0, name.encode(), b"\0", address.encode())
        return index

    def leave(self, name: str) -> None:
        """Leave, and say farewell on every link; or expel another process."""
        index = self._leaving(name)
        if index == self.me:
            if not self.has_left:
                if not self.has_turn:
                    raise LocalProtocolError(f"{self.name!r} leaves in its turn: it does not have the token")
                self._perform(self.machine.leave(index))  # refuses if the protocol has fixed members
                if self.serialization is not None:
                    self.serialization.leave(index)
                self._say_farewell(MemberDeparted(index))
                self._stage(Input.MEMBER_DEPARTED, index)
            return
        self._facts.check_expulsion(name)
        self._check_one_expulsion(name)
        self._leave(index, MemberExpelled(index))
        self._stage(Input.MEMBER_EXPELLED, index)
        self._advance()

    def _check_one_expulsion(self, name: str) -> None:
        """Refuse to expel another process while not everybody has closed with the one before, where the order
        of messages of others could be lost with both."""
        open_ones = [p for p, each in sorted(self.departures.items()) if each.expelled and each.stage < 2]
        if not self._facts.expels_one or not open_ones:
            return
        behind = [self.roster.name(p) for p in self.present_links() if self._is_behind(p, open_ones)]
        raise LocalProtocolError(
            f"{name!r} cannot be expelled yet: {self.roster.name(open_ones[0])!r} was, and not everybody has "
            f"closed with it ({', '.join(behind) or 'we have not'}). Messages of {self.protocol} do not tell "
            "enough to keep their order if both are gone at once. Try again; start again from its journal "
            "whoever does not answer"
        )

    def _is_behind(self, link: int, departed: Iterable[int]) -> bool:
        return any(self.departures[p].said.get(link, 0) < 1 for p in departed)

    def _say_farewell(self, news: MemberDeparted | MemberLeft) -> None:
        """Leave; the machine itself goes on."""
        for link in self.present_links():  # the last frame on every link
            self._put(link, changes.encode(news))
        self.has_left = True

    def _leaving(self, name: str) -> int:
        """The index of a process that is present, or whose farewell does not come."""
        for index in self.awaited:
            if self.roster.name(index) == name:
                return index
        return self.roster.index(name)

    def propose_site(self, text: str) -> None:
        """Change the topology, as soon as everything sent so far has arrived everywhere."""
        if self.sites is None:
            raise LocalProtocolError(f"{self.name!r} has no topology that could change")
        self.sites.propose(text)
        self.sites.advance()
        self._stage(Input.SITE_PROPOSED, 0, text.encode())

    def meet(self, link: int, incarnation: bytes) -> None:
        """Remember which journal a peer has, so that it is refused if it comes back with another."""
        self.incarnations[link] = incarnation
        self._stage(Input.PEER_MET, link, incarnation)

    # What follows from the inputs.

    def _go_on(self, site: Site) -> None:
        """Stand in another site: everything that anybody sent in the last one has been delivered."""
        for index in range(len(self.roster), len(site.members)):
            self.machine.join(index)
            self.roster.join(site.members[index])
            if self.tracking is not None:
                self.tracking.join(index)
            self._open_link(index)
            self.seniority.append(index)
        self.machine.resume_at(site.place)
        self._place, self._senders = site.place, senders_by_link(site.place)
        self.addresses.update(site.addresses)
        self.addresses.pop(self.name, None)
        self._without(site.departed)
        self.joined += 1

    def _without(self, departed: int) -> None:
        """Go on without those who are not in our site any more, of whom nothing is on its way."""
        for index in unpack(departed & ~pack(self.gone)):
            if index == self.me:
                self.has_left = True
                continue
            self._perform(self.machine.leave(index))
            self._perform(self.machine.close(index))
            self._note_gone(index)

    def _note_gone(self, index: int) -> None:
        """Nothing of this process is on its way, or expected, any more."""
        self.roster.leave(self.roster.name(index))
        self.gone.add(index)
        self.departures[index] = departure = Departure()
        departure.closed, departure.parted, departure.stage = True, True, FREE

    # When a process has failed for good (site_changes.py).

    def _steps(self) -> Steps:
        return Steps(
            put=self._put,
            go_on=self._go_on,
            is_idle=lambda: not self.machine.pending_count,
            lose=self._lose,
            send_again=self._send_again,
            stand_in=lambda failed: self._perform(self.machine.stand_in(failed)),
            do_without=self._do_without,
        )

    def _lose(self, succession: Succession) -> None:
        failed = succession.failed
        self.outboxes[failed] = Outbox(self.outboxes[failed].last)
        self.full.discard(failed)
        self._expect_heir(succession)
        self.joined += 1

    def _expect_heir(self, succession: Succession) -> None:
        """A witness brings what came over the link with the router it succeeds."""
        heir, senders = succession.heir, self._senders
        if succession.how is Inheritance.WITNESS and heir is not None and senders is not None:
            senders[heir] = senders.get(heir, 0) | senders.get(succession.failed, 0)

    def _send_again(self, failed: int) -> None:
        assert self.sites is not None
        neighbours = self.sites.site.place.neighbours & ~pack(self.sites.failed)
        for kept in self.sites.witnessing.kept(failed):
            for link in unpack(kept.address & neighbours):
                self._put(link, resent.encode(failed, kept.frame))

    def _receive_resent(self, sites: SiteChanges, link: int, frame: bytes) -> None:
        """Take a hop of a failed router from its witness, unless it has come before."""
        failed, inner = resent.decode(frame)
        under_way = sites.change.succession if sites.change is not None else None
        if under_way is None or (under_way.failed, under_way.heir) != (failed, link):
            raise RemoteProtocolError(f"process {link} sends for process {failed}, which it does not succeed")
        message, _ = decode(inner if self.tracking is None else self.tracking.unframe(inner))
        if message.via != failed or self._senders is None:
            raise RemoteProtocolError(f"a message of process {message.via} comes for process {failed}")
        if not self._senders.get(failed, 0) >> message.sender & 1:
            raise RemoteProtocolError(f"a message of process {message.sender} never came from {failed}")
        if not sites.witnessing.is_known(failed, message.hop):
            if self.tracking is not None:
                self.tracking.check(message)
            effects = self.machine.receive(message)
            sites.witnessing.came_again(failed, message.hop)
            self._arrived(message)
            self._perform(effects)

    def _do_without(self, failed: int) -> None:
        self._perform(self.machine.do_without(failed))
        self._note_gone(failed)

    @property
    def registrar(self) -> int:
        """Of those who have not left the first to have joined: the only one that admits others."""
        return next(index for index in self.seniority if index not in self.gone)

    def _names_ever(self) -> set[str]:
        return self.roster.ever()

    def present_links(self) -> list[int]:
        return [link for link in self.outboxes if link not in self.gone]

    def _listeners(self) -> list[int]:
        """Whom a change must reach before what presumes it: those present, and those we still answer."""
        return [link for link in self.outboxes if self._is_answered(link)]

    def _is_answered(self, link: int) -> bool:
        if link not in self.gone:
            return True
        return link in self.awaited and not self.departures[link].is_old

    def is_gone(self, link: int) -> bool:
        return link in self.gone

    def pending(self) -> list[Held]:
        return self.machine.pending()

    def bound_outboxes(self, most: int) -> None:
        """Keep in `full` the links whose outboxes have more bytes than this."""
        self.full_above = most
        self.full = {link for link, outbox in self.outboxes.items() if outbox.bytes > most}

    def held_count(self) -> int:
        """How many messages `pending` lists."""
        return self.machine.pending_count

    def cut(self) -> Batch:
        """End the current batch and return it: everything since the last cut."""
        released = {link: self.outboxes[link].last for link in self._out}
        received = {link: self.inboxes[link].received_through for link in self._in}
        batch = Batch(b"".join(self._entries), self.time, released, received, self._fresh, self._shared)
        self._entries, self._fresh, self.staged, self.is_dirty = [], [], 0, False
        self._shared = []
        self._out.clear()
        self._in.clear()
        return batch

    def release(self, batch: Batch) -> None:
        """Note that a batch is durable: its frames may leave, and those it received may be acknowledged."""
        if self.sites is not None and self._facts.witnesses:
            self.sites.witnessing.hold_back(batch.released_through, self.outboxes, self._absent())
        else:
            for link, number in batch.released_through.items():
                self.outboxes[link].release(number)
        for link, number in batch.received_through.items():
            self.inboxes[link].durable = number

    def let_go(self) -> set[int]:
        """Release what waits for witnesses no more; returns the links on which there is more to send."""
        if self.sites is None:
            return set()
        return self.sites.witnessing.let_go(self.outboxes, self._absent())

    def _absent(self) -> set[int]:
        """Those whom nobody waits for."""
        return self.gone if self.sites is None else self.gone | self.sites.failed

    def _stage(self, kind: int, number: int, *data: bytes) -> None:
        self.is_dirty = True
        if self._journaled:
            length = sum(map(len, data))
            self._entries.append(HEAD.pack(kind, number, length))
            self._entries += data
            self.staged += HEAD.size + length

    def _open_link(self, link: int) -> None:
        self.outboxes[link], self.inboxes[link], self.held_on_link[link] = Outbox(), Inbox(), 0
        self.full.discard(link)

    def _put(self, link: int, frame: bytes) -> int:
        outbox = self.outboxes[link]
        number = outbox.put(frame)
        if outbox.bytes > self.full_above:
            self.full.add(link)
        self._out.add(link)
        return number

    def _arrived(self, message: Any) -> None:
        self.events += 1
        if self.recorder is not None:
            self.recorder.received(self.events, self.time, message)

    def _perform(self, effects: Iterable[Any]) -> None:
        """Number the frames and deliveries that a machine asks for. EngineFault: one of them cannot be
        encoded although the machine has changed already, so the node must stop."""
        if effects:
            try:
                self._carry_out(effects)
            except CausalityError as error:
                raise EngineFault(f"cannot carry out what the protocol asks for: {error}") from error

    def _carry_out(self, effects: Iterable[Any]) -> None:
        # What this process sends to itself arrives at once, after all the other effects.
        looped: deque[Any] = deque()
        while True:
            sends = []
            for effect in effects:
                if type(effect) is Deliver:
                    self._deliver(effect)
                elif effect.to == self.me:
                    looped.append(effect.message)
                elif self.sites is not None and effect.to in self.sites.failed:
                    continue
                elif effect.to not in self.gone or self._takes_messages(effect.to):
                    sends.append(effect)
            if sends:
                alike: dict[bytes, dict[int, int]] = {}
                for (to, _), frame in zip(sends, self._frames(sends), strict=True):
                    number = self._put(to, frame)
                    if self.shares:
                        alike.setdefault(frame, {})[to] = number
                self._shared += alike.items()
            if not looped:
                return
            message = looped.popleft()
            effects = self.machine.receive(message)
            self._arrived(message)

    def _takes_messages(self, gone: int) -> bool:
        """Whether what a machine sends to a process that has gone is put on its link all the same."""
        return gone in self.awaited or self.departures[gone].is_old

    def _frames(self, sends: Sequence[Send[Any]]) -> list[bytes]:
        messages, tracking = [message for _, message in sends], self.tracking
        if tracking is None:
            return encode_multicast(messages)
        if self.shares:  # with the piggybacks for all, so that all get the same
            payloads = [message.payload for message in messages]
        else:
            payloads = [tracking.payload_for(to, message.payload) for to, message in sends]
        return [tracking.frame(frame) for frame in encode_multicast(messages, payloads)]

    def _deliver(self, effect: Deliver) -> None:
        sender, clock, payload = effect
        if self._counts_held and sender != self.me:
            self.held_on_link[sender] -= 1
            self.held_bytes -= len(payload)
        if self.tracking is not None:
            payload = self.tracking.delivered(sender, payload)
        if self.sites is not None:
            self.sites.tally.delivered[sender] += 1
        history = ""
        if self._facts.qualifier == "after":
            history = json.dumps(history_to_json(cast(Any, self.machine).history_of(sender, clock)))
        self._hand_over(sender, clock, payload, history)

    def _hand_over(self, sender: int, clock: int, payload: bytes, history: str = "") -> None:
        """Give a message to the application."""
        self.events += 1
        self.delivered += 1
        delivery = Delivery(self.delivered, sender, clock, payload, history)
        self.unacknowledged[self.delivered] = delivery
        self.unacknowledged_bytes += len(payload)
        self._fresh.append(delivery)
        if self.recorder is not None:
            self.recorder.delivered(self.events, self.time, sender, clock)

    # Members.

    def _change_members(self, link: int, frame: bytes) -> None:
        change = changes.decode(frame)
        if self.departures.means_somebody_else(link, change.index):
            return
        match change:
            case MemberJoined(index, name, address):
                self._hear_joined(link, index, name, address)
            case MemberLeft(index):
                self._hear_left_as_before(link, index)
            case MemberDeparted(index):
                self._hear_departed(link, index)
            case MemberExpelled(index):
                self._hear_expelled(link, index)
            case MemberAbsent(index):
                self._hear_absent(link, index)
            case MemberRanked(index):
                self._check_known(link, index)
                self._rank_last(index)
            case DepartureStage(index, stage):
                if index in self.gone:
                    self.departures[index].said[link] = stage

    def _hear_joined(self, link: int, index: int, name: str, address: str) -> None:
        try:
            check_name(name)
        except LocalProtocolError as error:
            raise RemoteProtocolError(f"not a change of members: {error}") from error
        known = len(self.roster)
        is_free = index in self.gone and self.departures[index].stage >= LAST_STAGE
        if name not in self._names_ever() and (index == known < self._most or is_free):
            if self._has_admitted and not self.has_left and not self._replays:
                check_admission(self.name, self.departures, link, name)
            self._join(index, name, address)
        elif (index >= known or self.roster.name(index) != name) and not self.has_left:
            raise _disagreement(link, index, name)

    def _hear_farewell(self, link: int) -> None:
        self.farewells.add(link)
        self.has_left = True

    def _hear_departed(self, link: int, index: int) -> None:
        self._check_known(link, index)
        if index == self.me:
            self._hear_farewell(link)
            return
        if index not in self.gone:
            self.awaited.add(index)  # what it sent before it left may still be on its way to us
            self._leave(index, MemberDeparted(index))
        departure = self.departures[index]
        departure.heard.add(link)
        if index == link and not departure.parted:
            departure.parted = True
            self.awaited.discard(index)
            self._put(index, changes.encode(MemberDeparted(index)))  # nothing more will come from us

    def _hear_expelled(self, link: int, index: int) -> None:
        self._check_known(link, index)
        if index == self.me:
            self._hear_farewell(link)
            return
        departure = self.departures.get(index)
        if departure is None or not (departure.expelled or departure.closed):
            self._leave(index, MemberExpelled(index))
        self.departures[index].heard.add(link)

    def _hear_absent(self, link: int, index: int) -> None:
        self._check_known(link, index)
        if index not in self.gone:
            self._leave(index, MemberDeparted(index))
        self.awaited.discard(index)
        self.departures[index].expelled = False

    def _hear_left_as_before(self, link: int, index: int) -> None:
        """A departure in the words of versions up to 0.2.0, who also said farewell to it at once."""
        self._check_known(link, index)
        if index == self.me:
            self._hear_farewell(link)
            return
        if index not in self.gone:
            self._leave_as_before(index)
            if index != link:  # what it sent before it left may still be on its way to us
                self.awaited.add(index)
        if index == link:
            self.awaited.discard(index)

    def _leave_as_before(self, index: int) -> None:
        self.machine.note_departure(index)
        self.roster.leave(self.roster.name(index))
        self.gone.add(index)
        self.departures[index] = Departure(is_old=True)
        if self.serialization is not None:
            self.serialization.leave(index)
        for link in (*self.present_links(), index):
            self._put(link, changes.encode(MemberLeft(index)))

    def _check_known(self, link: int, index: int) -> None:
        if index >= len(self.roster):
            raise _disagreement(link, index, "")

    def _join(self, index: int, name: str, address: str, *, as_before: bool = False) -> None:
        admits = self.registrar == self.me and not as_before
        frame = changes.encode(MemberJoined(index, name, address))  # refuses what is too long
        effects = self.machine.join(index)  # refuses if the protocol has fixed members; nothing has changed
        self.roster.join(name, index)
        if self.tracking is not None:
            self.tracking.join(index)
        if index in self.gone:
            self.gone.discard(index)
            self.farewells.discard(index)
            self.departures.give_again(index)
            self._under_way = self.departures.under_way()
        for link in self._listeners():
            if link != index:
                self._put(link, frame)
        self.addresses[name] = address
        self.joined += 1
        self._open_link(index)
        self.incarnations.pop(index, None)
        for gone in sorted(self.gone):
            self._put(index, changes.encode(self._news_of(gone, admits=admits)))
            if stage := self.departures[gone].stage:
                self._put(index, changes.encode(DepartureStage(gone, min(stage, LAST_STAGE))))
        self._rank_last(index)
        if admits and self.seniority != sorted(self.seniority):
            for each in self.seniority:
                self._put(index, changes.encode(MemberRanked(each)))
        if self.has_left:  # it was admitted meanwhile, and waits for our farewell like the others
            self._put(index, changes.encode(MemberDeparted(self.me)))
        self._perform(effects)
        if self.serialization is not None:
            self.serialization.join(index)

    def _news_of(
        self, gone: int, *, admits: bool
    ) -> MemberAbsent | MemberLeft | MemberDeparted | MemberExpelled:
        """What a newcomer is told of a process that has gone. That process has sent it nothing if we admit
        the newcomer, and also if its farewell came before we heard of the newcomer: had it known the newcomer
        when it left, it would have told us on the same link, before its farewell."""
        departure = self.departures[gone]
        if admits or (departure.closed and not departure.expelled):
            return MemberAbsent(gone)
        if departure.is_old:
            return MemberLeft(gone)
        return MemberExpelled(gone) if departure.expelled else MemberDeparted(gone)

    def _rank_last(self, index: int) -> None:
        self.seniority = [each for each in self.seniority if each != index] + [index]

    def _leave(self, index: int, news: MemberDeparted | MemberExpelled) -> None:
        """Note that a process has gone, or that one which was leaving is expelled; tell everybody."""
        effects: list[Any] = []
        departure = self.departures.get(index)
        is_expelled = isinstance(news, MemberExpelled)
        if departure is None:
            effects = self.machine.leave(index)
            self.roster.leave(self.roster.name(index))
            self.gone.add(index)
            self.departures[index] = departure = Departure()
        elif departure.is_old:
            effects = self.machine.go_on_without(index)
            departure.is_old = False
        if is_expelled:
            effects += self.machine.expel(index)
        for link in self._listeners():
            if link != index:
                self._put(link, changes.encode(news))
        if is_expelled:
            departure.expelled = departure.parted = True
            self.awaited.discard(index)
            self._put(index, changes.encode(MemberDeparted(index)))  # should it live, it hears so from us
        self._under_way = self.departures.under_way()
        self._perform(effects)
        if self.serialization is not None:
            self.serialization.leave(index)

    def _advance(self) -> None:
        """Do what has become possible with those who have gone."""
        present = self.present_links()
        for index in self.departures.to_close(self.awaited, present):
            departure = self.departures[index]
            if departure.is_old:
                self._perform(self.machine.go_on_without(index))
            departure.closed, departure.is_old = True, False
            self._perform(self.machine.close(index))
        for index in self.departures.under_way():
            departure = self.departures[index]
            if departure.closed and not departure.stage and not self._holds(index):
                self._reach(index, 1)
            while departure.advances(present):
                if departure.stage == 1:
                    self.machine.forget(index)
                self._reach(index, departure.stage + 1)
        self._under_way = self.departures.under_way()

    def _reach(self, index: int, stage: int) -> None:
        self.departures[index].stage = stage
        if stage <= LAST_STAGE:
            for link in self.present_links():
                self._put(link, changes.encode(DepartureStage(index, stage)))

    def _holds(self, index: int) -> bool:
        """Whether a message of this process waits for others here."""
        return self.held_count() > 0 and any(held.message.sender == index for held in self.pending())

    # Surviving.

    def replay(self, entries: bytes, time: int) -> None:
        """Give the inputs of these entries again; they are durable already."""
        self.time, self._replays = time, True
        try:
            for kind, number, data in read_entries(entries):
                self._redo(kind, number, data)
        finally:
            self._replays = False
        self.release(self.cut())

    def _redo(self, kind: int, number: int, data: bytes) -> None:
        match kind:
            case Input.MULTICAST:
                self._multicast(tuple(unpack(int.from_bytes(data[:number], "little"))), data[number:])
            case Input.UNORDERED:
                to = tuple(unpack(int.from_bytes(data[:number], "little")))
                self.multicast_unordered(to, data[number:])
            case Input.FRAME_RECEIVED:
                self.receive(number, data)
            case Input.DELIVERY_ACKED:
                self.acknowledge(number)
            case Input.FRAMES_FREED:
                upto = int.from_bytes(data, "big")
                self.outboxes[number].release(upto)
                self.free(number, upto)
            case Input.MEMBER_ADMITTED:
                name, _, address = data.partition(b"\0")
                self.join(name.decode(), address.decode())
            case Input.MEMBER_DEPARTED | Input.MEMBER_EXPELLED:
                self.leave(self.roster.name(number))
            case Input.MEMBER_JOINED:
                name, _, address = data.partition(b"\0")
                self._join(len(self.roster), name.decode(), address.decode(), as_before=True)
            case Input.MEMBER_LEFT if number == self.me:
                self._say_farewell(MemberLeft(number))
            case Input.MEMBER_LEFT:
                self._leave_as_before(number)
            case Input.PEER_MET:
                self.meet(number, data)
            case Input.QUALIFIED:
                dests, how = from_bytes(data[:number])
                self._multicast_qualified(tuple(unpack(dests)), data[number:], how)
            case Input.EXPIRED:
                self.expire()
            case Input.TOKEN_WANTED:
                self.want_token()
            case Input.TOKEN_RELEASED:
                self.release_token(away=bool(number))
            case Input.RELEVANT_EVENT:
                self.relevant(data.decode())
            case Input.SITE_PROPOSED:
                self.propose_site(data.decode())
            case _:
                raise ValueError(f"no input is of kind {kind}")

    def snapshot(self) -> bytes:
        """The whole state, at a cut: a header in JSON, the machine's own snapshot, frames and payloads."""
        return b"".join(self.snapshot_parts())

    def snapshot_parts(self) -> list[bytes]:
        """The same as pieces that another thread can put together: copying them takes most of the time."""
        if self.is_dirty:
            raise LocalProtocolError("a snapshot is taken at a cut")
        machine = self.machine.snapshot()
        blobs = [machine]
        links = {}
        for link, outbox in self.outboxes.items():
            frames = list(outbox.frames())
            blobs += frames
            links[link] = [outbox.acknowledged, list(map(len, frames)), self.inboxes[link].received_through]
        blobs += [delivery.payload for delivery in self.unacknowledged.values()]
        head = {
            "members": [self.roster.name(index) for index in range(len(self.roster))],
            "gone": sorted(self.gone),
            "farewells": sorted(self.farewells),
            "left": self.has_left,
            "addresses": self.addresses,
            "incarnations": {link: each.hex() for link, each in self.incarnations.items()},
            "events": self.events,
            "sent": self.sent,
            "delivered": self.delivered,
            "machine": len(machine),
            "links": links,
            "unacknowledged": [
                [*each[:3], len(each.payload), *([each.history] if each.history else [])]
                for each in self.unacknowledged.values()
            ],
        }
        if self.awaited:
            head["awaited"] = sorted(self.awaited)
        if self.gone:
            head["departures"] = {index: each.state() for index, each in sorted(self.departures.items())}
        if self.seniority != list(range(len(self.roster))):
            head["seniority"] = self.seniority
        if self.roster.former:
            head["former"] = sorted(self.roster.former)
        if self.sites is not None:
            head["site"] = self.sites.state()
            head["witnessing"], frames = self.sites.witnessing.state()
            blobs += frames
        if self.serialization is not None:
            head["token"] = self.serialization.token.state()
        if self._unsent:
            head["unsent"] = list(self._unsent)
        if self.tracking is not None:
            blobs.append(self.tracking.snapshot())
            head["tracker"] = len(blobs[-1])
        text = json.dumps(head, separators=(",", ":")).encode()
        return [len(text).to_bytes(4, "big"), text, *blobs]

    def restore(self, data: bytes) -> None:
        """Replace the state by that of the engine which made this snapshot."""
        head, position = snapshot_head(data)

        def take(length: int) -> bytes:
            nonlocal position
            position += length
            return data[position - length : position]

        self.roster = Roster(head["members"])
        self.gone, self.farewells = set(head["gone"]), set(head["farewells"])
        self.awaited = set(head.get("awaited", ()))
        self.has_left = head.get("left", False)
        self.roster.remember(head.get("former", ()))
        self.seniority = head.get("seniority", list(range(len(self.roster))))
        told = head.get("departures", {})  # which versions up to 0.2.0 did not write
        self.departures = Departures()
        for index in head["gone"]:
            self.roster.leave(self.roster.name(index))
            state = told.get(str(index))
            self.departures[index] = Departure(is_old=True) if state is None else Departure.from_state(state)
        self._under_way = self.departures.under_way()
        self.addresses = head["addresses"]
        self.incarnations = {int(k): bytes.fromhex(each) for k, each in head["incarnations"].items()}
        self.events, self.sent, self.delivered = head["events"], head["sent"], head["delivered"]
        if self.sites is not None and "site" in head:
            self.sites.restore(head["site"])
            self._place = self.sites.site.place
            self._senders = senders_by_link(self._place)
            if self.sites.change is not None and self.sites.change.succession is not None:
                self._expect_heir(self.sites.change.succession)
        self.machine.restore(take(head["machine"]))
        if self.serialization is not None and "token" in head:
            self.serialization.token.restore(head["token"])
        self.outboxes, self.inboxes = {}, {}
        for key, (acknowledged, lengths, received) in head["links"].items():
            self.outboxes[int(key)] = Outbox(acknowledged, [take(length) for length in lengths])
            self.inboxes[int(key)] = Inbox(received)
        self.unacknowledged = {
            number: Delivery(number, sender, clock, take(length), *history)
            for number, sender, clock, length, *history in head["unacknowledged"]
        }
        self.unacknowledged_bytes = sum(len(each.payload) for each in self.unacknowledged.values())
        if self.sites is not None and "witnessing" in head:
            self.sites.witnessing.restore(head["witnessing"], take)
            self.sites.witnessing.hold_back_again(self.outboxes, self._absent())
        if self.tracking is not None:
            self.tracking = self.tracking.restored(take(head["tracker"]), len(self.roster))
        self.held_on_link = dict.fromkeys(self.outboxes, 0)
        self.held_bytes = 0
        if self._counts_held:
            for held in self.machine.pending():
                if held.message.sender != self.me:
                    self.held_on_link[held.message.sender] += 1
                    self.held_bytes += len(held.message.payload)
        self._unsent = deque(head.get("unsent", ()))
        self.queued_bytes = sum(self._unsent)
        self.bound_outboxes(self.full_above)


def snapshot_head(data: bytes) -> tuple[dict[str, Any], int]:
    """The header of a snapshot, and where it ends."""
    end = 4 + int.from_bytes(data[:4], "big")
    return json.loads(data[4:end]), end


def _disagreement(link: int, index: int, name: str) -> RemoteProtocolError:
    return RemoteProtocolError(
        f"process {link} says that {name!r} is process {index}, and we disagree: "
        "let one process at a time admit members"
    )
