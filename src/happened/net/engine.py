"""All the state of a node that must survive it, as a function of its inputs.

Assumes    inputs are given one at a time; the machine of the ordering protocol is deterministic.
Promises   the same inputs in the same order give the same state, byte for byte the same frames under the
           same link numbers, the same deliveries under the same numbers and the same trace. So a journal
           of inputs is a journal of everything: `replay` of the entries restores what was lost.
           An input that is refused changes nothing and is not in the journal.
Invariant  event `events` is the last one of the machine's own numbering (ordering/machine.py). Link p's
           outbox is numbered by `link.py`. A delivery keeps its number, from 1, until it is acknowledged.

Entries are what the journal keeps, one per input: kind, a number, the length of the data, the data.

    MULTICAST   bytes of the set   destination set (little-endian), then the payload
    RECEIVED    link's process     the next frame of that link
    TAKEN       delivery number                             the application acknowledged a delivery
    FREED       link's process     link number              a peer has our frames up to there
    JOINED      0                  name, NUL, address
    LEFT        index
    MET         index              incarnation

Frames are those of `wire/`, and two of our own that begin with 0xff: JOIN (index, name, address) and LEAVE
(index). A node forwards each on all its links before anything that presumes it, so members are numbered
alike everywhere as long as one process at a time admits them: the first one present, the *registrar*.
"""

import json
import struct
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from ..core.destinations import pack, unpack
from ..core.effects import Deliver, Send
from ..core.errors import CausalityError, LocalProtocolError, RemoteProtocolError
from ..core.roster import Roster
from ..ordering import Held, Machine, create, sent_clock
from ..wire import decode, encode_multicast, most_processes
from .errors import EngineFault
from .handshake import check_name
from .link import Inbox, Outbox

HEAD = struct.Struct(">BQI")
MULTICAST, RECEIVED, TAKEN, FREED, JOINED, LEFT, MET = range(1, 8)

MEMBERSHIP = 0xFF
JOIN, LEAVE = 1, 2

RELAYING = frozenset({"flooding", "sequencer"})
"""Protocols in which a process passes on what others have sent."""

WAITS_FOR_PAST = frozenset(
    ("ks", "bss", "bss-groups", "chain-two", "kim", "prs", "pruning", "psync", "rst", "ses")
)
"""Protocols in which a held message waits only for messages of its causal past, each of which comes straight
from its sender. Then a causally first one among those not yet delivered is the next on its link and is not
held: reading only links that have nothing held makes progress, whatever has been held back."""


class Delivery(NamedTuple):
    number: int
    sender: int
    clock: int
    payload: bytes


class Recorder(Protocol):
    """Takes the events of the trace; see recording.py."""

    def sent(self, seq: int, time: int, clock: int, to: Iterable[int], messages: Sequence[Any]) -> None: ...
    def received(self, seq: int, time: int, message: Any) -> None: ...
    def delivered(self, seq: int, time: int, sender: int, clock: int) -> None: ...


class Batch(NamedTuple):
    """Inputs that become durable together, and what may be seen of them once they are."""

    entries: bytes
    time: int
    released: dict[int, int]  # per link, our frames up to this number
    taken: dict[int, int]  # per link, its frames up to this number
    deliveries: list[Delivery]


class Engine:
    def __init__(
        self,
        name: str,
        members: Sequence[str],
        protocol: str,
        options: Mapping[str, Any] | None = None,
        recorder: Recorder | None = None,
        journaled: bool = True,
    ) -> None:
        self.name = name
        self.protocol = protocol
        self._most = most_processes(protocol)
        if len(members) > self._most:
            raise LocalProtocolError(f"{len(members)} members; messages of {protocol} can name {self._most}")
        self.roster = Roster(members)
        self.me = self.roster.index(name)
        self.addresses: dict[str, str] = {}  # of those who joined at run time
        self.machine: Machine = create(protocol, self.me, len(members), **dict(options or {}))
        self.outboxes = {p: Outbox() for p in range(len(members)) if p != self.me}
        self.inboxes = {p: Inbox() for p in self.outboxes}
        self.incarnations: dict[int, bytes] = {}
        self.recorder = recorder
        self.events = 0
        self.time = 0  # ns, of the input at hand
        self.sent = 0  # multicasts
        self.delivered = 0  # the number of the last delivery
        self.unacknowledged: dict[int, Delivery] = {}
        self.unacknowledged_bytes = 0
        self._gone: set[int] = set()
        self.has_left = False  # or was expelled: nobody takes our messages any more
        self.farewells: set[int] = set()  # the links on which nothing more will come, since we have left
        self.held = dict.fromkeys(self.outboxes, 0)
        self._counts_held = protocol in WAITS_FOR_PAST
        self._journaled = journaled  # otherwise nobody reads the entries
        self._entries: list[bytes] = []
        self.staged = 0  # bytes of entries that no batch has taken
        self.is_dirty = False  # whether there were inputs since the last cut
        self._fresh: list[Delivery] = []
        self._out: set[int] = set()
        self._in: set[int] = set()

    # Inputs.

    def multicast(self, to: Sequence[int], payload: bytes) -> int:
        """Returns the clock that names the message."""
        if self.has_left:
            raise LocalProtocolError(f"{self.name!r} has left the others, or they have expelled it")
        effects = self.machine.multicast(to, payload)
        clock = sent_clock(self.machine, effects)
        dests = pack(to)
        size = (dests.bit_length() + 7) // 8
        self._stage(MULTICAST, size, dests.to_bytes(size, "little"), payload)
        self.events += 1
        self.sent += 1
        if self.recorder is not None:
            messages = [effect.message for effect in effects if isinstance(effect, Send)]
            self.recorder.sent(self.events, self.time, clock, unpack(dests), messages)
        self._perform(effects)
        return clock

    def receive(self, link: int, frame: bytes) -> None:
        """The next frame of a link. RemoteProtocolError: it is refused, and nothing has changed."""
        if frame and frame[0] == MEMBERSHIP:
            self._membership(link, frame)
        else:
            message, size = decode(frame)
            if size != len(frame):
                raise RemoteProtocolError(f"{len(frame) - size} bytes follow the end of a frame")
            dests = getattr(message, "dests", 0)
            if dests and message.sender != link and self.protocol not in RELAYING:
                raise RemoteProtocolError(f"a message of process {message.sender} comes from process {link}")
            effects = self.machine.receive(message)
            self._arrived(message)
            if self._counts_held:
                self.held[link] += 1
            if len(effects) == 1 and type(effects[0]) is Deliver:
                self._deliver(effects[0])
            else:
                self._perform(effects)
        self._stage(RECEIVED, link, frame)
        self.inboxes[link].taken += 1
        self._in.add(link)

    def acknowledge(self, number: int) -> bool:
        """The application is done with a delivery. False: it was before."""
        if not self.forget(number):
            return False
        self._stage(TAKEN, number)
        return True

    def forget(self, number: int) -> bool:
        """The same where nothing is kept for after a crash."""
        delivery = self.unacknowledged.pop(number, None)
        if delivery is not None:
            self.unacknowledged_bytes -= len(delivery.payload)
        return delivery is not None

    def free(self, link: int, number: int) -> bool:
        """A peer has our frames up to this link number. False: we knew."""
        outbox = self.outboxes[link]
        if number <= outbox.acknowledged:
            return False
        outbox.acknowledge(number)
        self._stage(FREED, link, number.to_bytes(8, "big"))
        return True

    def join(self, name: str, address: str) -> int:
        """Admit a process; returns its index."""
        if self.registrar != self.me:
            raise LocalProtocolError(
                f"{self.roster.name(self.registrar)!r} admits new members, so that all are numbered alike"
            )
        if name in self._names_ever():
            raise LocalProtocolError(f"{name!r} is or was a member: a process that joins needs a new name")
        if len(self.roster) >= self._most:
            raise LocalProtocolError(f"there were {self._most} members already, which is the limit")
        return self._join(name, address)

    def leave(self, name: str) -> None:
        index = self.roster.index(name)
        if index == self.me:
            if not self.has_left:
                for link in self.present_links():  # last of all on every link; the machine itself goes on
                    self._put(link, _leave_frame(index))
                self.has_left = True
                self._stage(LEFT, index)
            return
        self._leave(index)

    def meet(self, link: int, incarnation: bytes) -> None:
        self.incarnations[link] = incarnation
        self._stage(MET, link, incarnation)

    # What follows from them.

    @property
    def registrar(self) -> int:
        return min(set(range(len(self.roster))) - self._gone)

    def _names_ever(self) -> set[str]:
        return {self.roster.name(index) for index in range(len(self.roster))}

    def present_links(self) -> list[int]:
        return [link for link in self.outboxes if link not in self._gone]

    def is_gone(self, link: int) -> bool:
        return link in self._gone

    def pending(self) -> list[Held]:
        return self.machine.pending()

    def cut(self) -> Batch:
        """Everything since the last cut, as one batch."""
        released = {link: self.outboxes[link].last for link in self._out}
        taken = {link: self.inboxes[link].taken for link in self._in}
        batch = Batch(b"".join(self._entries), self.time, released, taken, self._fresh)
        self._entries, self._fresh, self.staged, self.is_dirty = [], [], 0, False
        self._out.clear()
        self._in.clear()
        return batch

    def release(self, batch: Batch) -> None:
        """A batch is durable."""
        for link, number in batch.released.items():
            self.outboxes[link].release(number)
        for link, number in batch.taken.items():
            self.inboxes[link].durable = number

    def _stage(self, kind: int, number: int, *data: bytes) -> None:
        self.is_dirty = True
        if self._journaled:
            length = sum(map(len, data))
            self._entries.append(HEAD.pack(kind, number, length))
            self._entries += data
            self.staged += HEAD.size + length

    def _put(self, link: int, frame: bytes) -> None:
        self.outboxes[link].put(frame)
        self._out.add(link)

    def _arrived(self, message: Any) -> None:
        self.events += 1
        if self.recorder is not None:
            self.recorder.received(self.events, self.time, message)

    def _perform(self, effects: Iterable[Any]) -> None:
        """Number the frames and deliveries. What we send ourselves arrives at once, after all the rest."""
        if effects:
            try:
                self._carry_out(effects)
            except CausalityError as error:
                raise EngineFault(f"cannot carry out what the protocol asks for: {error}") from error

    def _carry_out(self, effects: Iterable[Any]) -> None:
        looped: deque[Any] = deque()
        while True:
            sends = []
            for effect in effects:
                if type(effect) is Deliver:
                    self._deliver(effect)
                elif effect.to == self.me:
                    looped.append(effect.message)
                else:
                    sends.append(effect)
            if sends:
                frames = encode_multicast([message for _, message in sends])
                for (to, _), frame in zip(sends, frames, strict=True):
                    self.outboxes[to].put(frame)
                    self._out.add(to)
            if not looped:
                return
            message = looped.popleft()
            effects = self.machine.receive(message)
            self._arrived(message)

    def _deliver(self, effect: Deliver) -> None:
        self.events += 1
        self.delivered += 1
        sender, clock, payload = effect
        delivery = Delivery(self.delivered, sender, clock, payload)
        self.unacknowledged[self.delivered] = delivery
        self.unacknowledged_bytes += len(payload)
        self._fresh.append(delivery)
        if self._counts_held and sender != self.me:
            self.held[sender] -= 1
        if self.recorder is not None:
            self.recorder.delivered(self.events, self.time, sender, clock)

    # Members.

    def _membership(self, link: int, frame: bytes) -> None:
        try:
            kind, index, name, address = json.loads(frame[1:])
            if not (type(kind) is type(index) is int and isinstance(name, str) and isinstance(address, str)):
                raise ValueError("wrong types")
            if kind == JOIN:
                check_name(name)
        except (ValueError, TypeError, RecursionError, LocalProtocolError) as error:
            raise RemoteProtocolError(f"not a change of members: {error}") from error
        if kind == LEAVE and 0 <= index < len(self.roster):
            if index == self.me:
                self.farewells.add(link)
                self.has_left = True
            elif index not in self._gone:
                self._leave(index, staged=False)
        elif kind == JOIN and index == len(self.roster) < self._most and name not in self._names_ever():
            self._join(name, address, staged=False)
        elif kind != JOIN or not 0 <= index < len(self.roster) or self.roster.name(index) != name:
            raise RemoteProtocolError(
                f"process {link} says that {name!r} is process {index}, and we disagree: "
                "let one process at a time admit members"
            )

    def _join(self, name: str, address: str, *, staged: bool = True) -> int:
        index = len(self.roster)
        self.machine.join(index)  # refuses if the protocol has fixed members; then nothing has changed
        self.roster.join(name)
        if staged:
            self._stage(JOINED, 0, name.encode(), b"\0", address.encode())
        for link in self.present_links():
            self._put(link, _join_frame(index, name, address))
        self.addresses[name] = address
        self.outboxes[index], self.inboxes[index], self.held[index] = Outbox(), Inbox(), 0
        for gone in sorted(self._gone):
            self._put(index, _leave_frame(gone))
        return index

    def _leave(self, index: int, *, staged: bool = True) -> None:
        self.machine.leave(index)
        self.roster.leave(self.roster.name(index))
        self._gone.add(index)
        if staged:
            self._stage(LEFT, index)
        for link in (*self.present_links(), index):  # to the one who leaves: nothing more will come from us
            self._put(link, _leave_frame(index))

    # Surviving.

    def replay(self, entries: bytes, time: int) -> None:
        """Do again what these entries record; everything is durable already."""
        self.time = time
        for kind, number, data in read_entries(entries):
            self._redo(kind, number, data)
        self.release(self.cut())

    def _redo(self, kind: int, number: int, data: bytes) -> None:
        match kind:
            case 1:  # MULTICAST
                self.multicast(tuple(unpack(int.from_bytes(data[:number], "little"))), data[number:])
            case 2:  # RECEIVED
                self.receive(number, data)
            case 3:  # TAKEN
                self.acknowledge(number)
            case 4:  # FREED
                upto = int.from_bytes(data, "big")
                self.outboxes[number].release(upto)
                self.free(number, upto)
            case 5:  # JOINED
                name, _, address = data.partition(b"\0")
                self._join(name.decode(), address.decode())
            case 6:  # LEFT
                self.leave(self.roster.name(number))
            case 7:  # MET
                self.meet(number, data)
            case _:
                raise ValueError(f"no input is of kind {kind}")

    def snapshot(self) -> bytes:
        """The whole state, at a cut: a header in JSON, the machine's own snapshot, frames and payloads."""
        if self.is_dirty:
            raise LocalProtocolError("a snapshot is taken at a cut")
        machine = self.machine.snapshot()
        blobs = [machine]
        links = {}
        for link, outbox in self.outboxes.items():
            frames = list(outbox.frames())
            blobs += frames
            links[link] = [outbox.acknowledged, list(map(len, frames)), self.inboxes[link].taken]
        blobs += [delivery.payload for delivery in self.unacknowledged.values()]
        head = {
            "members": [self.roster.name(index) for index in range(len(self.roster))],
            "gone": sorted(self._gone),
            "farewells": sorted(self.farewells),
            "left": self.has_left,
            "addresses": self.addresses,
            "incarnations": {link: each.hex() for link, each in self.incarnations.items()},
            "events": self.events,
            "sent": self.sent,
            "delivered": self.delivered,
            "machine": len(machine),
            "links": links,
            "unacknowledged": [[*each[:3], len(each.payload)] for each in self.unacknowledged.values()],
        }
        text = json.dumps(head, separators=(",", ":")).encode()
        return b"".join([len(text).to_bytes(4, "big"), text, *blobs])

    def restore(self, data: bytes) -> None:
        """Become what made this snapshot."""
        size = int.from_bytes(data[:4], "big")
        head = json.loads(data[4 : 4 + size])
        position = 4 + size

        def take(length: int) -> bytes:
            nonlocal position
            position += length
            return data[position - length : position]

        self.roster = Roster(head["members"])
        self._gone, self.farewells = set(head["gone"]), set(head["farewells"])
        self.has_left = head.get("left", False)
        for index in head["gone"]:
            self.roster.leave(self.roster.name(index))
        self.addresses = head["addresses"]
        self.incarnations = {int(k): bytes.fromhex(each) for k, each in head["incarnations"].items()}
        self.events, self.sent, self.delivered = head["events"], head["sent"], head["delivered"]
        self.machine.restore(take(head["machine"]))
        self.outboxes, self.inboxes = {}, {}
        for key, (acknowledged, lengths, taken) in head["links"].items():
            self.outboxes[int(key)] = Outbox(acknowledged, [take(length) for length in lengths])
            self.inboxes[int(key)] = Inbox(taken)
        self.unacknowledged = {
            number: Delivery(number, sender, clock, take(length))
            for number, sender, clock, length in head["unacknowledged"]
        }
        self.unacknowledged_bytes = sum(len(each.payload) for each in self.unacknowledged.values())
        self.held = dict.fromkeys(self.outboxes, 0)
        if self._counts_held:
            for held in self.machine.pending():
                if held.message.sender != self.me:
                    self.held[held.message.sender] += 1


def read_entries(entries: bytes) -> Iterator[tuple[int, int, bytes]]:
    position, end = 0, len(entries)
    while position < end:
        kind, number, length = HEAD.unpack_from(entries, position)
        position += HEAD.size + length
        if position > end:
            raise ValueError("an entry is cut off")
        yield kind, number, entries[position - length : position]


def _join_frame(index: int, name: str, address: str) -> bytes:
    return bytes((MEMBERSHIP,)) + json.dumps([JOIN, index, name, address]).encode()


def _leave_frame(index: int) -> bytes:
    return bytes((MEMBERSHIP,)) + json.dumps([LEAVE, index, "", ""]).encode()
