"""The kernel: all state of a node that must survive a restart, as a function of its inputs.

Assumes    inputs are given one at a time; the machine of the ordering protocol is deterministic.
Promises   the same inputs in the same order give the same state, byte for byte the same frames under the
           same link numbers, the same deliveries under the same numbers and the same trace. So a journal
           of inputs (batch.py) restores everything: `replay` gives its entries again.
           An input that is refused changes nothing and is not in the journal.
Invariant  event `events` is the last one that the machine numbered (ordering/machine.py). link.py numbers
           each outbox. A delivery keeps its number, from 1, until it is acknowledged.
Leaves out everything that only some nodes have: engine.py attaches layers (batch.py) for that.

Parts      link.py: outboxes, and how far each link has come; member_changes.py: who takes part.
"""

import json
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from ..core.destinations import pack, unpack
from ..core.effects import Deliver, Send
from ..core.errors import CausalityError, LocalProtocolError, RemoteProtocolError
from ..core.roster import Roster
from ..core.tuples import new
from ..ordering import Held, Machine, create, facts_of
from ..wire import encode_multicast, encode_sends, load
from .batch import (
    HEAD,
    Batch,
    Delivery,
    Give,
    Input,
    LayerTables,
    Order,
    Read,
    Recorder,
    read_entries,
    read_message,
    snapshot_head,
)
from .batch import Deliver as Delivering
from .errors import EngineFault
from .link import Inbox, Links, Outbox
from .member_changes import MemberChanges

# Looked up once: access to a member of an Enum runs Python code, and every message needs these two.
MULTICAST, FRAME_RECEIVED = Input.MULTICAST, Input.FRAME_RECEIVED
DELIVERY_ACKED, FRAMES_FREED = Input.DELIVERY_ACKED, Input.FRAMES_FREED


class Kernel(LayerTables):
    """The durable state of the process `name`; with `journaled=False` no entries are kept."""

    # Slots: CPython keeps an object's attributes in a dict, which is slower, if there are more than 30.
    __slots__ = (
        *("name", "protocol", "facts", "members", "me", "links", "machine", "recorder"),
        *("order", "encode", "read", "deliver", "give", "record_sent", "put_each", "let_go"),
        *("release_frames", "events", "time", "sent", "delivered", "unacknowledged"),
        *("unacknowledged_bytes", "counts_held", "held_bytes", "unsent", "queued_bytes", "replays"),
        *("_journaled", "_entries", "staged_entries", "is_dirty", "_fresh", "shared"),
    )

    def __init__(
        self,
        name: str,
        members: Sequence[str],
        protocol: str,
        options: Mapping[str, Any] | None = None,
        recorder: Recorder | None = None,
        journaled: bool = True,
    ) -> None:
        self.name, self.protocol = name, protocol
        self.facts = facts = facts_of(protocol)
        n = len(members)
        if n > facts.assumes.most_processes:
            raise LocalProtocolError(
                f"{n} members; messages of {protocol} can name {facts.assumes.most_processes}"
            )
        load(facts)
        self._have_no_layers()
        self.members = MemberChanges(name, members, facts, self)
        self.me = self.members.me
        self.links = Links(p for p in range(n) if p != self.me)
        self.machine: Machine = create(protocol, self.me, n, **(options or {}))
        self.order: Order = self.machine.multicast
        self.put_each = self.links.put_each
        self.recorder = recorder
        self.events = 0
        self.time = 0  # ns, of the current input
        self.sent = 0  # how many multicasts
        self.delivered = 0  # the number of the last delivery
        self.unacknowledged: dict[int, Delivery] = {}
        self.unacknowledged_bytes = 0
        # Held messages are counted by link only where pausing that link makes progress.
        self.counts_held = facts.waits.only_for_past
        self.held_bytes = 0  # of the payloads of held messages
        # Payload sizes of our newest multicasts: of those that the protocol has not sent yet.
        self.unsent: deque[int] = deque()
        self.queued_bytes = 0  # the sum of those sizes
        self.replays = False
        self._journaled = journaled  # otherwise nobody reads the entries
        self._entries: list[bytes] = []
        self.staged_entries = 0  # bytes of entries since the last cut
        self.is_dirty = False  # whether there were inputs since the last cut
        self._fresh: list[Delivery] = []  # deliveries since the last cut
        self.shared: list[tuple[bytes, dict[int, int]]] = []  # frames for a medium since the last cut
        self.members.attach()

    def _have_no_layers(self) -> None:
        LayerTables.__init__(self)
        self.inputs |= {
            MULTICAST: self._multicast_again,
            FRAME_RECEIVED: self.receive,
            DELIVERY_ACKED: lambda number, data: self.acknowledge(number),
            FRAMES_FREED: lambda link, data: self.free(link, int.from_bytes(data, "big")),
            Input.PEER_MET: self.meet,
            Input.LIFE_BEGUN: lambda number, data: self.begin_life(data),
            Input.LIFE_HEARD: self.hear_life,
        }
        self.encode: Callable[[Sequence[Send[Any]]], list[bytes]] = encode_sends
        self.read: Read = read_message
        self.deliver: Delivering = self.hand_over
        self.give: Give = self.number
        self.let_go: Callable[[], Iterable[int]] = tuple
        self.record_sent = self._record_sent
        self.release_frames: Callable[[Mapping[int, int]], None] = self._release_frames

    # Attributes of the parts that many callers need.

    @property
    def roster(self) -> Roster:
        return self.members.roster

    @property
    def gone(self) -> set[int]:
        """The indices of members that have left or were expelled."""
        return self.members.gone

    @property
    def has_left(self) -> bool:
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
        """Bytes that the next batch will write to the journal: entries, and parked frames."""
        return self.staged_entries + self.links.parking_bytes

    # Inputs.

    def multicast(self, to: Sequence[int], payload: bytes) -> int:
        """Multicast a payload of the application; returns the message's clock, which names it."""
        if self.may_send or self.members.has_left:
            self.check_may_send()
        for seal in self.seals:
            payload = seal(to, payload)
        return self._multicast(to, payload)

    def check_may_send(self) -> None:
        self.check_has_not_left()
        for check in self.may_send:
            check()

    def check_has_not_left(self) -> None:
        if self.members.has_left:
            raise LocalProtocolError(f"{self.name!r} has left the others, or they have expelled it")

    def _multicast(self, to: Sequence[int], payload: bytes) -> int:
        clock, effects = self.order(to, payload)
        dests = pack(to)
        size = (dests.bit_length() + 7) // 8
        self.stage(MULTICAST, size, dests.to_bytes(size, "little"), payload)
        if self.machine.queued:
            self.unsent.append(len(payload))
            self.queued_bytes += len(payload)
            self._drop_sent()
        for note in self.on_sent:  # the same as `count_sent`, without the call
            note(dests, clock)
        self.events += 1
        self.sent += 1
        sends, frames = self._encoded(effects)
        if self.recorder is not None:
            self.record_sent(self.recorder, clock, dests, effects, frames)
        self._carry_out(effects, sends, frames)
        return clock

    def _record_sent(
        self, recorder: Recorder, clock: int, dests: int, effects: Sequence[Any], frames: list[bytes]
    ) -> None:
        messages = []
        for effect in effects:
            if type(effect) is not Deliver:
                messages.append(effect.message)
        if len(messages) != len(frames):  # some go to ourselves, or to nobody, and have no frame
            frames = encode_multicast(messages)
        recorder.sent(self.events, self.time, clock, dests, messages, frames)

    def count_sent(self, dests: int, clock: int) -> None:
        """Count a message that was multicast to this set."""
        for note in self.on_sent:
            note(dests, clock)
        self.events += 1
        self.sent += 1

    def _multicast_again(self, size: int, data: bytes) -> None:
        self._multicast(tuple(unpack(int.from_bytes(data[:size], "little"))), data[size:])

    def receive(self, link: int, frame: bytes) -> None:
        """Take the next frame of a link. RemoteProtocolError: it is refused, and nothing has changed."""
        if link in self.barred:
            raise RemoteProtocolError(self.barred[link])
        # A process that was expelled may not know yet that nobody listens to it.
        if link not in self.members.gone or not self.members.departures[link].expelled:
            hear = self.frames.get(frame[0], self.receive_message) if frame else self.receive_message
            hear(link, frame)
        if self.steps:
            for step in tuple(self.steps.values()):
                step()
        self.stage(FRAME_RECEIVED, link, frame)
        links = self.links
        links.inboxes[link].received_through += 1
        links.came.add(link)

    def receive_message(self, link: int, frame: bytes) -> None:
        """Take a message of the ordering protocol, or refuse it."""
        message = self.read(link, frame)
        for check in self.checks:
            check(message)
        effects = self.machine.receive(message)
        self._note_arrival(message, frame)
        for note in self.on_arrival:
            note(link, message, frame)
        if self.unsent:
            self._drop_sent()
        if len(effects) == 1 and type(effects[0]) is Deliver:
            sender, clock, payload = effects[0]
            if sender == link and clock == message.clock:  # delivered at once, and never counted as held
                self.deliver(sender, clock, payload)
                return
        if self.counts_held:
            self.links.count_held(link, 1)
            self.held_bytes += len(message.payload)
        self.perform(effects)

    def receive_again(self, message: Any) -> None:
        """Take a message that another process sends on behalf of its sender."""
        for check in self.checks:
            check(message)
        effects = self.machine.receive(message)
        self._note_arrival(message, b"")
        self.perform(effects)

    def _note_arrival(self, message: Any, frame: bytes) -> None:
        self.events += 1
        if self.recorder is not None:
            self.recorder.received(self.events, self.time, message, frame)

    def _drop_sent(self) -> None:
        """Keep only the sizes of multicasts that have not left: if a protocol keeps some back, they are the
        newest."""
        queued = self.machine.queued
        while len(self.unsent) > queued:
            self.queued_bytes -= self.unsent.popleft()

    def acknowledge(self, number: int) -> bool:
        """Note that the application has acknowledged a delivery; False if that was known before."""
        if not self.forget(number):
            return False
        self.stage(DELIVERY_ACKED, number)
        return True

    def forget(self, number: int) -> bool:
        """Drop an unacknowledged delivery without an entry, for a node that has no journal."""
        delivery = self.unacknowledged.pop(number, None)
        if delivery is not None:
            self.unacknowledged_bytes -= len(delivery.payload)
        return delivery is not None

    def remember(self, delivery: Delivery) -> None:
        """Take back a delivery that `forget` dropped: it is to be delivered again."""
        self.unacknowledged[delivery.number] = delivery
        self.unacknowledged_bytes += len(delivery.payload)

    @property
    def acknowledged(self) -> int:
        return min(self.unacknowledged, default=self.delivered + 1) - 1

    def free(self, link: int, number: int) -> bool:
        """Drop our frames up to this link number, which the peer has; False if they were dropped before."""
        if self.replays:
            self.outboxes[link].release(number)
        if not self.links.free(link, number):
            return False
        self.stage(FRAMES_FREED, link, number.to_bytes(8, "big"))
        return True

    def join(self, name: str, address: str) -> int:
        return self.members.admit(name, address)

    def leave(self, name: str) -> None:
        self.members.depart(name)

    def meet(self, link: int, incarnation: bytes) -> None:
        """Remember which journal a peer has, so that the peer is refused if it returns with another one."""
        self.members.incarnations[link] = incarnation
        self.stage(Input.PEER_MET, link, incarnation)

    def begin_life(self, life: bytes) -> None:
        """The node was started and its journal replayed: frames numbered from now on are of this life."""
        self.links.lives.begin(life, self.outboxes)
        self.stage(Input.LIFE_BEGUN, 0, life)

    def hear_life(self, link: int, life: bytes) -> None:
        """The peer numbered the last frame of a link in this life of its own."""
        self.links.lives.hear(link, self.inboxes[link].received_through, life)
        self.stage(Input.LIFE_HEARD, link, life)

    # Effects of the inputs.

    def cut(self) -> Batch:
        """End the current batch and return it: everything since the last cut."""
        released, received, parking = self.links.cut()
        batch = Batch(
            b"".join(self._entries), self.time, released, received, self._fresh, self.shared, parking
        )
        self._entries, self._fresh, self.staged_entries, self.is_dirty = [], [], 0, False
        self.shared = []
        return batch

    def release(self, batch: Batch) -> None:
        """Note that a batch is durable: its frames may leave, and those it received may be acknowledged."""
        if batch.received_through or batch.parking:
            self.links.note_durable(batch.received_through, batch.parking)
        self.release_frames(batch.released_through)

    def _release_frames(self, through: Mapping[int, int]) -> None:
        outboxes = self.links.outboxes
        for link, number in through.items():  # the same as `Outbox.release`, without the call
            outbox = outboxes[link]
            outbox.released = max(outbox.released, min(number, outbox.last))

    def stage(self, kind: int, number: int, *data: bytes) -> None:
        self.is_dirty = True
        if self._journaled:
            length = sum(map(len, data))
            self._entries.append(HEAD.pack(kind, number, length))
            self._entries += data
            self.staged_entries += HEAD.size + length

    def perform(self, effects: Sequence[Any]) -> None:
        """Number the frames and deliveries that a machine asks for. EngineFault: one of them cannot be
        encoded although the machine has changed already, so the node must stop."""
        if effects:
            self._carry_out(effects, *self._encoded(effects))

    def _encoded(self, effects: Iterable[Any]) -> tuple[list[Send[Any]], list[bytes]]:
        gone, me, sends = self.members.gone, self.me, []
        for effect in effects:
            if type(effect) is Deliver or effect.to == me or effect.to in self.barred:
                continue
            if effect.to not in gone or self.members.takes_messages(effect.to):
                sends.append(effect)
        if not sends:
            return sends, []
        try:
            return sends, self.encode(sends)
        except CausalityError as error:
            raise EngineFault(f"cannot carry out what the protocol asks for: {error}") from error

    def _carry_out(self, effects: Iterable[Any], sends: Sequence[Send[Any]], frames: Sequence[bytes]) -> None:
        # A message of this process to itself arrives at once, after all other effects.
        looped: deque[Any] = deque()
        try:
            while True:
                self.put_each(sends, frames)
                for effect in effects:
                    if type(effect) is Deliver:
                        self._deliver_held(effect)
                    elif effect.to == self.me:
                        looped.append(effect.message)
                if not looped:
                    return
                message = looped.popleft()
                effects = self.machine.receive(message)
                self._note_arrival(message, b"")
                sends, frames = self._encoded(effects)
        except EngineFault:
            raise
        except CausalityError as error:
            raise EngineFault(f"cannot carry out what the protocol asks for: {error}") from error

    def _deliver_held(self, effect: Deliver) -> None:
        sender, clock, payload = effect
        if self.counts_held and sender != self.me:
            self.links.count_held(sender, -1)
            self.held_bytes -= len(payload)
        self.deliver(sender, clock, payload)

    def hand_over(self, sender: int, clock: int, payload: bytes, history: str = "") -> None:
        """Give a message to the application through `give`, which may keep it back for a while."""
        self.events += 1
        if self.recorder is not None:
            self.recorder.delivered(self.events, self.time, sender, clock)
        self.give(sender, clock, payload, history)

    def number(self, sender: int, clock: int, payload: bytes, history: str) -> None:
        """Give the application's next delivery its number."""
        self.delivered += 1
        delivery = new(Delivery, (self.delivered, sender, clock, payload, history))
        self.unacknowledged[self.delivered] = delivery
        self.unacknowledged_bytes += len(payload)
        self._fresh.append(delivery)

    # Snapshots and replay.

    def replay(self, entries: bytes, time: int) -> Batch:
        """Give the inputs of these entries again; they are durable, except for the frames they park."""
        self.time, self.replays = time, True
        try:
            for kind, number, data in read_entries(entries):
                if kind not in self.inputs:
                    raise ValueError(f"no input is of kind {kind}")
                self.inputs[kind](number, data)
        finally:
            self.replays = False
        batch = self.cut()
        self.release(batch)
        return batch

    def snapshot(self) -> bytes:
        """The whole state at a cut: a header in JSON, the machine's own snapshot, frames and payloads."""
        return b"".join(self.snapshot_parts())

    def snapshot_parts(self) -> list[bytes]:
        """The parts of `snapshot`, for another thread to join: copying them takes most of the time."""
        if self.is_dirty:
            raise LocalProtocolError("a snapshot is taken at a cut")
        machine = self.machine.snapshot()
        links, frames = self.links.state()
        open_ones = self.unacknowledged.values()
        blobs = [machine, *frames, *(each.payload for each in open_ones)]
        head: dict[str, Any] = {
            "events": self.events,
            "sent": self.sent,
            "delivered": self.delivered,
            "unsent": list(self.unsent),
            "members": self.members.state(),
            "machine": len(machine),
            "links": links,
            "unacknowledged": [
                [*each[:3], len(each.payload), *([each.history] if each.history else [])]
                for each in open_ones
            ],
        }
        for layer in self.layers:
            head[layer.key], more = layer.state()
            blobs += more
        text = json.dumps(head, separators=(",", ":")).encode()
        return [len(text).to_bytes(4, "big"), text, *blobs]

    def restore(self, data: bytes) -> None:
        """Replace the state by the state in this snapshot of a kernel."""
        head, position = snapshot_head(data)

        def take(length: int) -> bytes:
            nonlocal position
            position += length
            return data[position - length : position]

        self.events, self.sent, self.delivered = head["events"], head["sent"], head["delivered"]
        self.members.restore(head["members"])
        self.machine.restore(take(head["machine"]))
        self.links.restore(head["links"], take)
        self.unacknowledged, self.unacknowledged_bytes = {}, 0
        for number, sender, clock, length, *history in head["unacknowledged"]:
            self.remember(Delivery(number, sender, clock, take(length), *history))
        self.held_bytes = 0
        for held in self.machine.pending() if self.counts_held else ():
            if held.message.sender != self.me:
                self.links.count_held(held.message.sender, 1)
                self.held_bytes += len(held.message.payload)
        for layer in self.layers:
            layer.restore(head[layer.key], take)
        self.unsent = deque(head["unsent"])
        self.queued_bytes = sum(self.unsent)
