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

Parts      links.py: what is to be sent and how far each link has come; member_changes.py: who takes part;
           link_routes.py and site_changes.py: where a topology says who takes part, and changes as a whole;
           engine_snapshots.py: all of it as bytes.
Token      Where sends must be serialized, a process multicasts in its turn: serialized.py.
State      Who joins may begin with the application's state at another process: state_transfer.py.
Unordered  Messages outside of all orders pass the machine by, which only counts them: unordered.py.
Signed     Where messages are signed, those that arrive are checked before anything changes: signed.py.
"""

import json
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast

from ..core.destinations import pack, unpack
from ..core.effects import Deliver, Send
from ..core.errors import CausalityError, LocalProtocolError, RemoteProtocolError
from ..core.roster import Roster
from ..core.tuples import new
from ..ordering import Held, Machine, Multicast, create, facts_of, having, needed
from ..ordering.capabilities import Expires, ReplacesForwarder, Serializes
from ..tracking import Stamp
from ..wire import decode, encode_multicast, load, resent, site_news, token_frames
from ..wire import membership as changes
from ..wire import unordered_message as unordered_wire
from ..wire.unordered_message import UnorderedMessage
from . import engine_snapshots, state_steps
from .batch import Batch, Delivery, Recorder
from .errors import EngineFault
from .inputs import HEAD, Input, read_entries
from .link import Inbox, Outbox
from .link_routes import Routes
from .links import Links
from .member_changes import MemberChanges
from .qualified import PLAIN, How, attributes, from_bytes, history_to_json, to_bytes
from .serialized import Serialization
from .signed import ORDERED, UNORDERED, Signed, check_protocol
from .site import Site
from .site_changes import SiteChanges
from .site_steps import SiteSteps, receive_resent
from .speakers import check_timestamp
from .state_transfer import Transfers
from .tracked import MARK as TRACKED_MARK
from .tracked import Tracking, refuse_piggybacks
from .unordered import check_arrival, check_destinations, next_hops

# Looked up once: a member of an Enum costs a call of Python code, and these are needed for every message.
CHANGE_MARK, UNORDERED_MARK, TOKEN_MARK = changes.MARK, unordered_wire.MARK, token_frames.MARK
APART = frozenset((CHANGE_MARK, UNORDERED_MARK, TOKEN_MARK, TRACKED_MARK))
"""What frames begin with that may be no plain message of the ordering protocol."""
MULTICAST, FRAME_RECEIVED = Input.MULTICAST, Input.FRAME_RECEIVED
DELIVERY_ACKED, FRAMES_FREED = Input.DELIVERY_ACKED, Input.FRAMES_FREED


class Engine:
    """The durable state of the process `name`; `journaled=False` keeps no entries. `tracker` is a tracking
    protocol's name, None for none; `site` is where the process stands, if a topology says so; `signed`: all
    messages are."""

    # Slots: CPython keeps more than 30 attributes of an object in a dict of its own, which is slower.
    __slots__ = (
        *("name", "protocol", "_facts", "members", "me", "links", "sites", "routes", "machine"),
        *("serialization", "transfers", "tracking", "_is_total", "_is_plain", "recorder", "history"),
        *("signed", "events", "time", "sent", "delivered", "unacknowledged", "unacknowledged_bytes"),
        *("_clocks", "_has_witnesses", "counts_held", "held_bytes", "unsent", "queued_bytes", "replays"),
        *("_journaled", "_entries", "_staged", "is_dirty", "_fresh", "shares", "_shared"),
    )

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
        signed: Signed | None = None,
    ) -> None:
        self.name = name
        self.protocol = protocol
        self._facts = facts = facts_of(protocol)
        n = len(members)
        if n > facts.most_processes:
            raise LocalProtocolError(f"{n} members; messages of {protocol} can name {facts.most_processes}")
        load(facts)
        self.members = MemberChanges(name, members, facts, self)
        self.me = self.members.me
        self.links = Links(p for p in range(n) if p != self.me)
        self.sites = None if site is None else SiteChanges(site, SiteSteps(self))
        placed = dict(options or {}) | ({} if site is None else {"place": site.place})
        self.routes = Routes(placed.get("place"))
        self.machine: Machine = create(protocol, self.me, n, **placed)
        self._has_witnesses = having(self.machine, ReplacesForwarder) is not None
        self.serialization: Serialization | None = None
        if facts.serialized:
            self.serialization = Serialization(needed(self.machine, Serializes), self.me, n, self.links.put)
        self.transfers = Transfers(self.me, self.links.put)
        self.tracking = None if tracker is None else Tracking(tracker, self.me, n, facts)
        self._is_total = facts.order.is_total
        self.signed = signed
        if signed is not None:
            self._clocks = check_protocol(facts, self.machine)
        # Whether a delivery brings nothing but a payload: see _opened.
        brings_more = self.tracking is not None or site is not None or signed is not None
        self._is_plain = not brings_more and facts.qualifier != "after"
        self.recorder = recorder
        self.history: Any = None  # of our last multicast, where the application manages histories
        self.events = 0
        self.time = 0  # ns, of the input at hand
        self.sent = 0  # multicasts
        self.delivered = 0  # the number of the last delivery
        self.unacknowledged: dict[int, Delivery] = {}
        self.unacknowledged_bytes = 0
        # Held messages are counted by link only where pausing that link makes progress.
        self.counts_held = facts.waits_only_for_past
        self.held_bytes = 0  # of their payloads
        # Sizes of our newest multicasts: of those that the protocol keeps back.
        self.unsent: deque[int] = deque()
        self.queued_bytes = 0  # of their payloads
        self.replays = False
        self._journaled = journaled  # otherwise nobody reads the entries
        self._entries: list[bytes] = []
        self._staged = 0  # bytes of entries since the last cut
        self.is_dirty = False  # whether there were inputs since the last cut
        self._fresh: list[Delivery] = []  # deliveries since the last cut
        self.shares = False  # whether a medium carries what is the same on several links
        self._shared: list[tuple[bytes, dict[int, int]]] = []  # since the last cut
        if site is not None:
            self.members.do_without(site.departed)

    # Of its parts, what everybody asks for.

    @property
    def roster(self) -> Roster:
        return self.members.roster

    @property
    def gone(self) -> set[int]:
        """The indices of those who have left or were expelled."""
        return self.members.gone

    @property
    def has_left(self) -> bool:
        """Whether we have left or were expelled: nobody takes our messages any more."""
        return self.members.has_left

    @property
    def outboxes(self) -> dict[int, Outbox]:
        return self.links.outboxes

    @property
    def inboxes(self) -> dict[int, Inbox]:
        return self.links.inboxes

    def present_links(self) -> list[int]:
        return self.members.present_links()

    def pending(self) -> list[Held]:
        return self.machine.pending()

    @property
    def staged(self) -> int:
        """Bytes that the next batch takes to the journal: entries, and frames that are parked."""
        return self._staged + self.links.parking_bytes

    def held_count(self) -> int:
        """How many messages `pending` lists."""
        return self.machine.pending_count

    # Inputs.

    def multicast(self, to: Sequence[int], payload: bytes, how: How = PLAIN) -> int:
        """Multicast a payload of the application; returns the clock that names the message. `how` is what
        an incomplete order takes besides."""
        if not self.has_turn:
            raise LocalProtocolError(f"{self.name!r} does not have the token; wait until there is room")
        if self.signed is not None:
            clock = self._clocks.coming_clock
            payload = self.signed.seal(self.me, clock, pack(to), payload, self.roster, ORDERED)
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
        self.transfers.sent(dests, clock)
        self.events += 1
        self.sent += 1
        if self.recorder is not None:
            told = attributes(self._facts, how, self.roster.name)
            self.recorder.sent_unordered(self.events, self.time, clock, unpack(dests), told)
        self.perform(effects)
        return int(clock)

    def _multicast(self, to: Sequence[int], payload: bytes) -> int:
        self._check_may_send()
        if self.tracking is None:
            clock, effects = self.machine.multicast(to, payload)
        else:
            clock, effects = self._multicast_tracked(self.tracking, to, payload)
        dests = pack(to)
        if self.sites is not None:
            self.sites.tally.sent.update(unpack(dests))
        self.transfers.sent(dests, clock)
        size = (dests.bit_length() + 7) // 8
        self._stage(MULTICAST, size, dests.to_bytes(size, "little"), payload)
        if self.machine.queued:
            self.unsent.append(len(payload))
            self.queued_bytes += len(payload)
            self._drop_sent()
        self.events += 1
        self.sent += 1
        if self.recorder is not None:
            messages = [effect.message for effect in effects if isinstance(effect, Send)]
            self.recorder.sent(self.events, self.time, clock, unpack(dests), messages)
        self.perform(effects)
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
        if self.signed is not None and not self.replays:
            clock = self._clocks.clock + 1
            payload = self.signed.seal(self.me, clock, dests, payload, self.roster, UNORDERED)
        clock = self.machine.tick()
        self.transfers.sent(dests, clock)
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
        check_arrival(message, link, self.me, len(self.roster), self.routes.place)
        self.routes.check(link, message.sender)
        if self.signed is not None and not self.replays:
            self.signed.check_one(message, message.payload, self.roster, UNORDERED)
        self._spread(message)

    def _spread(self, message: UnorderedMessage) -> None:
        """Send an unordered message on, and deliver it if it is for us."""
        for link in next_hops(message, self.me, self.routes.place):
            self.links.put(link, unordered_wire.encode(message))
        if message.dests >> self.me & 1:
            self.machine.tick()
            payload = message.payload if self.signed is None else self.signed.open(message.payload)
            self._hand_over(message.sender, message.clock, payload)

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
        needed(self.machine, Expires).expire()
        self._stage(Input.EXPIRED, 0)

    def receive(self, link: int, frame: bytes) -> None:
        """Take the next frame of a link. RemoteProtocolError: it is refused, and nothing has changed."""
        if frame and frame[0] not in APART and not self.members.gone and self.sites is None:
            self._receive_message(link, frame)
        else:
            self._receive_any(link, frame)
        if self.members.under_way:
            self.members.advance()
        if self.sites is not None and self.sites.change is not None:
            self.sites.advance()
        self.is_dirty = True
        if self._journaled:
            self._stage(FRAME_RECEIVED, link, frame)
        links = self.links
        links.inboxes[link].received_through += 1
        links.came.add(link)

    def _receive_any(self, link: int, frame: bytes) -> None:
        if self.sites is not None and link in self.sites.failed:
            raise RemoteProtocolError(f"{self.roster.name(link)!r} was declared to have failed for good")
        if self.members.takes_nothing_from(link):
            pass
        elif frame and frame[0] == CHANGE_MARK:
            if self.sites is not None and frame.startswith(site_news.HEAD):
                self.sites.hear(link, frame)
            elif self.sites is not None and frame.startswith(resent.HEAD):
                receive_resent(self, self.sites, link, frame)
            else:
                self.members.hear(link, frame)
        elif frame and frame[0] == UNORDERED_MARK:
            self._receive_unordered(link, frame)
        elif self.serialization is not None and frame and frame[0] == TOKEN_MARK:
            self.serialization.hear(link, frame)
        else:
            self._receive_message(link, frame)

    def _receive_message(self, link: int, frame: bytes) -> None:
        tracking, inner = self.tracking, frame
        if tracking is not None:
            inner = tracking.unframe(frame)
        elif frame and frame[0] == TRACKED_MARK:
            raise refuse_piggybacks(frame)
        message, size = decode(inner)
        if size != len(inner):
            raise RemoteProtocolError(f"{len(inner) - size} bytes follow the end of a frame")
        via = message.via
        if via is not None and via != link:
            raise RemoteProtocolError(f"a message of process {via} comes from process {link}")
        if self.routes.place is not None:
            self.routes.check(link, message.sender)
        if self.signed is not None and not self.replays:
            self.signed.check(message, self.roster, tracked=tracking is not None)
        if tracking is not None:
            tracking.check(message)
        if self._is_total and not self.replays:
            check_timestamp(getattr(message, "timestamp", 0), self.time)
        effects = self.machine.receive(message)
        self.events += 1  # as `note_arrival` does, without the call: this is for every message
        if self.recorder is not None:
            self.recorder.received(self.events, self.time, message)
        if self.sites is not None:
            number = self.inboxes[link].received_through + 1
            self.sites.witnessing.arrived(link, message, frame, number)
        if self.unsent:
            self._drop_sent()
        if self._is_plain and len(effects) == 1 and type(effects[0]) is Deliver:
            sender, clock, payload = effects[0]
            if sender == link and clock == message.clock:  # delivered at once, and never counted as held
                self._hand_over(sender, clock, payload)
                return
        if self.counts_held:
            self.links.count_held(link, 1)
            self.held_bytes += len(message.payload)
        self.perform(effects)

    def _drop_sent(self) -> None:
        """Keep the sizes of multicasts that have not left: a protocol that keeps some back does so with the
        newest."""
        queued = self.machine.queued
        while len(self.unsent) > queued:
            self.queued_bytes -= self.unsent.popleft()

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
        if not self.links.free(link, number):
            return False
        self._stage(FRAMES_FREED, link, number.to_bytes(8, "big"))
        return True

    def join(self, name: str, address: str) -> int:
        """Admit a process as the registrar; returns its index."""
        index = self.members.admit(name, address)
        self._stage(Input.MEMBER_ADMITTED, 0, name.encode(), b"\0", address.encode())
        return index

    def leave(self, name: str) -> None:
        """Leave, and say farewell on every link; or expel another process."""
        index = self.members.leaving(name)
        if index == self.me:
            if not self.has_left:
                if not self.has_turn:
                    raise LocalProtocolError(f"{self.name!r} leaves in its turn: it does not have the token")
                self.members.leave(index)
                self._stage(Input.MEMBER_DEPARTED, index)
            return
        self.members.expel(index)
        self._stage(Input.MEMBER_EXPELLED, index)
        self.members.advance()

    def owe_state(self, newcomer: int) -> None:
        """Give the process of this index, which was admitted just now, the application's state."""
        self.transfers.owe(newcomer, self.present_links())
        self._stage(Input.STATE_OWED, newcomer)

    def give_state(self, newcomer: int, state: bytes, most_bytes: int) -> None:
        """Send the application's state to a newcomer that it is owed to (state_steps.py)."""
        self._note_state_given(newcomer, state_steps.send(self, newcomer, state, most_bytes))

    def _note_state_given(self, newcomer: int, clocks: bytes) -> None:
        state_steps.note_given(self, newcomer, clocks)
        self._stage(Input.STATE_GIVEN, newcomer, clocks)

    def await_state(self, source: int) -> None:
        """Begin with the state that another process gives: nothing is delivered before it."""
        self.transfers.wait_for(source)
        self._stage(Input.STATE_AWAITED, source)

    def state_given(self, link: int, newcomer: int, clocks: tuple[int, ...]) -> None:
        """A process says which of its messages are the state that we wait for."""
        self.transfers.hear_given(link, newcomer, clocks)
        try:
            state_steps.begin_if_arrived(self)
        except RemoteProtocolError:
            self.transfers.take_back_given()
            raise

    def propose_site(self, text: str) -> None:
        """Change the topology, as soon as everything sent so far has arrived everywhere."""
        if self.sites is None:
            raise LocalProtocolError(f"{self.name!r} has no topology that could change")
        self.sites.propose(text)
        self.sites.advance()
        self._stage(Input.SITE_PROPOSED, 0, text.encode())

    def meet(self, link: int, incarnation: bytes) -> None:
        """Remember which journal a peer has, so that it is refused if it comes back with another."""
        self.members.incarnations[link] = incarnation
        self._stage(Input.PEER_MET, link, incarnation)

    def begin_life(self, life: bytes) -> None:
        """The node was started, and its journal replayed: what is numbered from now on is of this life."""
        self.links.lives.begin(life, self.outboxes)
        self._stage(Input.LIFE_BEGUN, 0, life)

    def hear_life(self, link: int, life: bytes) -> None:
        """The last frame of a link is of this life of the peer."""
        self.links.lives.hear(link, self.inboxes[link].received_through, life)
        self._stage(Input.LIFE_HEARD, link, life)

    # What follows from the inputs.

    def cut(self) -> Batch:
        """End the current batch and return it: everything since the last cut."""
        released, received = self.links.cut()
        entries, parking = b"".join(self._entries), self.links.cut_parking()
        batch = Batch(entries, self.time, released, received, self._fresh, self._shared, parking)
        self._entries, self._fresh, self._staged, self.is_dirty = [], [], 0, False
        self._shared = []
        return batch

    def release(self, batch: Batch) -> None:
        """Note that a batch is durable: its frames may leave, and those it received may be acknowledged."""
        if batch.parking is not None:
            for link, frames in batch.parking.frames.items():
                self.outboxes[link].written = frames[-1][0]
        if self.sites is not None and self._has_witnesses:
            self.sites.witnessing.hold_back(batch.released_through, self.outboxes, self.absent())
        else:
            for link, number in batch.released_through.items():
                self.outboxes[link].release(number)
        for link, number in batch.received_through.items():
            self.inboxes[link].durable = number

    def let_go(self) -> set[int]:
        """Release what waits for witnesses no more; returns the links on which there is more to send."""
        if self.sites is None:
            return set()
        return self.sites.witnessing.let_go(self.outboxes, self.absent())

    def absent(self) -> set[int]:
        """Those whom nobody waits for."""
        return self.gone if self.sites is None else self.gone | self.sites.failed

    def _stage(self, kind: int, number: int, *data: bytes) -> None:
        self.is_dirty = True
        if self._journaled:
            length = sum(map(len, data))
            self._entries.append(HEAD.pack(kind, number, length))
            self._entries += data
            self._staged += HEAD.size + length

    def note_arrival(self, message: Any) -> None:
        self.events += 1
        if self.recorder is not None:
            self.recorder.received(self.events, self.time, message)

    def perform(self, effects: Iterable[Any]) -> None:
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
        gone, me = self.members.gone, self.me
        while True:
            sends, links = [], []
            for effect in effects:
                if type(effect) is Deliver:
                    self._deliver(effect)
                    continue
                to = effect.to
                if to == me:
                    looped.append(effect.message)
                elif self.sites is not None and to in self.sites.failed:
                    continue
                elif to not in gone or self.members.takes_messages(to):
                    sends.append(effect)
                    links.append(to)
            if sends:
                frames = self._frames(sends)
                numbers = self.links.put_each(links, frames)
                if self.shares:
                    alike: dict[bytes, dict[int, int]] = {}
                    for (to, _), frame, number in zip(sends, frames, numbers, strict=True):
                        if to not in self.links.parked:  # what is on disk, the link carries
                            alike.setdefault(frame, {})[to] = number
                    self._shared += alike.items()
            if not looped:
                return
            message = looped.popleft()
            effects = self.machine.receive(message)
            self.note_arrival(message)

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
        if self.counts_held and sender != self.me:
            self.links.count_held(sender, -1)
            self.held_bytes -= len(payload)
        if self._is_plain:
            self._hand_over(sender, clock, payload)
        else:
            self._hand_over(sender, clock, *self._opened(sender, clock, payload))

    def _opened(self, sender: int, clock: int, payload: bytes) -> tuple[bytes, str]:
        """What a delivery brings besides, for the tracker and the site; the application's payload, and the
        history that comes with it."""
        if self.tracking is not None:
            payload = self.tracking.delivered(sender, payload)
        if self.signed is not None:
            payload = self.signed.open(payload)
        if self.sites is not None:
            self.sites.tally.delivered[sender] += 1
        if self._facts.qualifier != "after":
            return payload, ""
        return payload, json.dumps(history_to_json(cast(Any, self.machine).history_of(sender, clock)))

    def _hand_over(self, sender: int, clock: int, payload: bytes, history: str = "") -> None:
        """Give a message to the application, or keep it back until that has the state it begins with."""
        self.events += 1
        transfers = self.transfers
        transfers.tally.delivered[sender] += 1
        if self.recorder is not None:
            self.recorder.delivered(self.events, self.time, sender, clock)
        if transfers.awaited is not None:
            state_steps.withhold(self, Delivery(0, sender, clock, payload, history))
        elif not transfers.contained or not transfers.is_contained(sender, clock):
            self.number(sender, clock, payload, history)

    def number(self, sender: int, clock: int, payload: bytes, history: str) -> None:
        """Give what the application gets next its number."""
        self.delivered += 1
        delivery = new(Delivery, (self.delivered, sender, clock, payload, history))
        self.unacknowledged[self.delivered] = delivery
        self.unacknowledged_bytes += len(payload)
        self._fresh.append(delivery)
        if self.transfers.owed:
            self.transfers.handed_over(delivery, self.unacknowledged)

    # Surviving.

    def replay(self, entries: bytes, time: int) -> Batch:
        """Give the inputs of these entries again; they are durable already, but for what they park."""
        self.time, self.replays = time, True
        try:
            for kind, number, data in read_entries(entries):
                self._redo(kind, number, data)
        finally:
            self.replays = False
        batch = self.cut()
        self.release(batch)
        return batch

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
            case Input.STATE_OWED:
                self.owe_state(number)
            case Input.STATE_GIVEN:
                self._note_state_given(number, data)
            case Input.STATE_AWAITED:
                self.await_state(number)
            case Input.LIFE_BEGUN:
                self.begin_life(data)
            case Input.LIFE_HEARD:
                self.hear_life(number, data)
            case _:
                raise ValueError(f"no input is of kind {kind}")

    def snapshot(self) -> bytes:
        """The whole state, at a cut (engine_snapshots.py)."""
        return b"".join(self.snapshot_parts())

    def snapshot_parts(self) -> list[bytes]:
        """The same as pieces that another thread can put together."""
        return engine_snapshots.snapshot_parts(self)

    def restore(self, data: bytes) -> None:
        """Replace the state by that of the engine which made this snapshot."""
        engine_snapshots.restore(self, data)

    def count_held(self) -> None:
        """Count anew what is held, after the machine was restored."""
        self.held_bytes = 0
        if self.counts_held:
            for held in self.machine.pending():
                if held.message.sender != self.me:
                    self.links.count_held(held.message.sender, 1)
                    self.held_bytes += len(held.message.payload)
        for each in self.transfers.awaited.withheld if self.transfers.awaited is not None else ():
            state_steps.count_withheld(self, each, 1)

    def restore_unsent(self, sizes: Iterable[int]) -> None:
        self.unsent = deque(sizes)
        self.queued_bytes = sum(self.unsent)
