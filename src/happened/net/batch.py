"""What an engine is given and what it tells: inputs, batches, the trace, and what layers are."""

import json
import struct
from collections.abc import Callable, Iterator, Sequence
from enum import IntEnum
from typing import Any, NamedTuple, Protocol

from ..core.errors import RemoteProtocolError
from ..ordering import Multicast
from ..tracking import Stamp
from ..wire import decode
from .link import Parking

HEAD = struct.Struct(">BQI")


class Input(IntEnum):
    """The inputs of an engine as the journal keeps them, one entry each, in the order of their coming.

    An entry is a head (kind, number, length of the data; big-endian) and the data; what number and data mean
    stands beside each kind. The kinds' values are part of the journal's format: never reused, never changed.
    """

    MULTICAST = 1  # size of the destination set in bytes; that set (little-endian), then the payload
    FRAME_RECEIVED = 2  # link's process; the next frame of that link
    DELIVERY_ACKED = 3  # delivery number; nothing: the application has acknowledged that delivery
    FRAMES_FREED = 4  # link's process; a link number: the peer has our frames up to there
    PEER_MET = 5  # index; the incarnation of its journal
    RELEVANT_EVENT = 6  # 0; its label
    MEMBER_ADMITTED = 7  # 0; name, NUL, address
    MEMBER_DEPARTED = 8  # index; nothing: this process leaves
    MEMBER_EXPELLED = 9  # index; nothing: another process is declared gone
    SITE_PROPOSED = 10  # 0; the text of a topology that is to follow the present one
    UNORDERED = 11  # bytes of the set; as MULTICAST, for a message outside of all orders
    QUALIFIED = 12  # bytes of the head; the head (qualified.py), then the payload: an incomplete order
    EXPIRED = 13  # 0; nothing: what was known the last time is delivered everywhere
    TOKEN_WANTED = 14  # 0; nothing: this process asks for its turn to send
    TOKEN_RELEASED = 15  # 1 if away; nothing: its turn has ended; if it goes away, the token is passed on
    STATE_OWED = 16  # index; nothing: a newcomer is to get the application's state
    STATE_GIVEN = 17  # index; 8 bytes each: clocks of the multicasts before, which are that state
    STATE_AWAITED = 18  # index; nothing: this process begins with the state that another one gives
    LIFE_BEGUN = 19  # 0; the name of the life that begins: the node was started (lives.py)
    LIFE_HEARD = 20  # link's process; the life that numbered its last frame; nothing: nobody knows


def read_entries(entries: bytes) -> Iterator[tuple[int, int, bytes]]:
    """The kind, number and data of each entry; ValueError if the last one is cut off."""
    position, end = 0, len(entries)
    while position < end:
        if end - position < HEAD.size:
            raise ValueError("an entry is cut off within its head")
        kind, number, length = HEAD.unpack_from(entries, position)
        position += HEAD.size + length
        if position > end:
            raise ValueError("an entry is cut off")
        yield kind, number, entries[position - length : position]


class Delivery(NamedTuple):
    """One hand-over to the application: its own number, then the message's name and payload."""

    number: int
    sender: int
    clock: int
    payload: bytes
    history: str = ""  # the message's causal history (JSON), where the application manages histories


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
    parking: Parking | None = None


class Recorder:
    """Takes the events of the trace, and passes them on to another recorder if there is one. The one that
    writes them is in trace_recorder.py; parts that want to know of some extend those."""

    def __init__(self, recorder: "Recorder | None" = None) -> None:
        self._recorder = recorder

    def sent(
        self, seq: int, time: int, clock: int, to: int, messages: Sequence[Any], frames: Sequence[bytes]
    ) -> None:
        """A multicast to the set `to`, as messages and their frames."""
        if self._recorder is not None:
            self._recorder.sent(seq, time, clock, to, messages, frames)

    def sent_unordered(
        self, seq: int, time: int, clock: int, to: int, attributes: dict[str, str] | None = None
    ) -> None:
        if self._recorder is not None:
            self._recorder.sent_unordered(seq, time, clock, to, attributes)

    def received(self, seq: int, time: int, message: Any, frame: bytes) -> None:
        """`frame` is empty if the message came without one, as a message to ourselves does."""
        if self._recorder is not None:
            self._recorder.received(seq, time, message, frame)

    def delivered(self, seq: int, time: int, sender: int, clock: int) -> None:
        if self._recorder is not None:
            self._recorder.delivered(seq, time, sender, clock)

    def relevant(self, seq: int, time: int, tracker: str, stamp: Stamp, label: str) -> None:
        if self._recorder is not None:
            self._recorder.relevant(seq, time, tracker, stamp, label)


Take = Callable[[int], bytes]
"""Takes the next so many bytes of a snapshot."""
Order = Callable[[Any, bytes], Multicast]
Read = Callable[[int, bytes], Any]
Hear = Callable[[int, bytes], object]
Deliver = Callable[[int, int, bytes], None]
Give = Callable[[int, int, bytes, str], None]


class Layer(Protocol):
    """One part of a snapshot: `key` names it."""

    @property
    def key(self) -> str: ...
    def state(self) -> tuple[Any, list[bytes]]:
        """As JSON, and blobs that `restore` takes in the same order."""

    def restore(self, state: Any, take: Take) -> None: ...


class LayerTables:
    """The tables and lists of a kernel that layers, the optional parts of a node's durable state, put
    themselves into; the functions that they wrap are the kernel's own.

    A layer attaches itself to a kernel once, before the first input. It does so by putting its own
    functions into the kernel's tables and lists, or around the kernel's functions:

        inputs        its own inputs, by their kind in the journal: how to give them again
        frames        its own frames, by their first byte: what to do with one that arrives
        may_send      raises LocalProtocolError while nothing may be multicast
        seals         changes a payload before it is journaled, as a signature does
        record_sent   puts a multicast into the trace
        order         gives a multicast to the machine
        encode        makes frames of the machine's messages
        put_each      puts frames into outboxes
        read          makes a message of a frame that arrives, or refuses it
        checks        refuse a message that was read, if it does not fit the state here
        deliver       takes what the machine delivers to the application
        give          numbers a delivery for the application
        on_sent, on_arrival   hear of each multicast, and of each message that has arrived
        joining, joined, left   hear of members: while one is taken in, after that, and when one has gone
        steps         what goes on after each frame, as long as something is under way
        barred        links that take and give nothing, each with the reason
        release_frames, let_go   let frames leave whose cause is durable, and others that wait for that

    A layer that is not attached costs nothing and is nowhere mentioned.
    """

    __slots__ = (
        *("barred", "checks", "frames", "inputs", "joined", "joining", "layers", "left"),
        *("may_send", "on_arrival", "on_sent", "seals", "steps"),
    )

    def __init__(self) -> None:
        self.layers: list[Layer] = []
        self.inputs: dict[int, Callable[[int, bytes], object]] = {}
        self.frames: dict[int, Hear] = {}
        self.may_send: list[Callable[[], None]] = []
        self.seals: list[Callable[[Sequence[int], bytes], bytes]] = []
        self.checks: list[Callable[[Any], None]] = []
        self.on_sent: list[Callable[[int, int], None]] = []
        self.on_arrival: list[Callable[[int, Any, bytes], None]] = []
        self.joining: list[Callable[[int], None]] = []
        self.joined: list[Callable[[int], None]] = []
        self.left: list[Callable[[int], None]] = []
        self.steps: dict[str, Callable[[], None]] = {}
        self.barred: dict[int, str] = {}


def snapshot_head(data: bytes) -> tuple[dict[str, Any], int]:
    """The header of a kernel's snapshot, in which each layer has its part, and where it ends."""
    end = 4 + int.from_bytes(data[:4], "big")
    return json.loads(data[4:end]), end


def read_message(link: int, frame: bytes) -> Any:
    """The message of a frame, which must be that of the process at the other end of the link."""
    message, size = decode(frame)
    if size != len(frame):
        raise RemoteProtocolError(f"{len(frame) - size} bytes follow the end of a frame")
    via = message.via
    if via is not None and via != link:
        raise RemoteProtocolError(f"a message of process {via} comes from process {link}")
    return message
