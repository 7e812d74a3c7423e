"""The inputs of an engine, the batches that it returns, the recorder of its trace, and layers of a kernel."""

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
    """The inputs of an engine as the journal keeps them: one entry per input, in the order of arrival.

    An entry is a head (kind, number, length of the data; big-endian) and the data; the comment beside a kind
    says what number and data mean. The values are part of the journal's format: never reuse or change one.
    """

    MULTICAST = 1  # size of the destination set in bytes; the set (little-endian), then the payload
    FRAME_RECEIVED = 2  # link's process; the next frame of that link
    DELIVERY_ACKED = 3  # delivery number; nothing: the application has acknowledged that delivery
    FRAMES_FREED = 4  # link's process; a link number: the peer has our frames up to this one
    PEER_MET = 5  # index of the peer; the incarnation of its journal
    RELEVANT_EVENT = 6  # 0; its label
    MEMBER_ADMITTED = 7  # 0; name, NUL, address
    MEMBER_DEPARTED = 8  # index; nothing: this process leaves
    MEMBER_EXPELLED = 9  # index; nothing: another process is declared gone
    SITE_PROPOSED = 10  # 0; the text of the topology that is proposed to replace the present one
    UNORDERED = 11  # bytes of the set; as MULTICAST, for a message outside all orders
    QUALIFIED = 12  # bytes of the head; the head (qualified.py), then the payload, in an incomplete order
    EXPIRED = 13  # 0; nothing: what was known at the previous EXPIRED is delivered everywhere by now
    TOKEN_WANTED = 14  # 0; nothing: this process asks for its turn to send
    TOKEN_RELEASED = 15  # 1 if away; nothing: its turn has ended; if it is going away, it passes the token on
    STATE_OWED = 16  # index; nothing: this process is to give the newcomer the application's state
    STATE_GIVEN = 17  # index; 8 bytes each: clocks of the preceding multicasts that carry the state
    STATE_AWAITED = 18  # index; nothing: this process begins with the state that process `index` gives
    LIFE_BEGUN = 19  # 0; the name of the life that begins when the node is started (lives.py)
    LIFE_HEARD = 20  # link's process; the life that numbered its last frame; nothing: that life is unknown


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
    """One hand-over to the application: the number of the delivery, then the message's name and payload."""

    number: int
    sender: int
    clock: int
    payload: bytes
    history: str = ""  # the message's causal history (JSON), where the application manages histories


class Batch(NamedTuple):
    """Inputs that become durable together, and the effects that may be seen once the inputs are durable."""

    entries: bytes
    time: int  # ns, of the last input
    released_through: dict[int, int]  # per link: our frames up to this number may leave
    received_through: dict[int, int]  # per link: its frames up to this number may be acknowledged
    deliveries: list[Delivery]
    shared: Sequence[tuple[bytes, dict[int, int]]] = ()
    """Frames sent, in order, each with its link number on every link that has it; only if the engine
    `shares`. A replay gives none: the links send again the frames that it makes."""
    parking: Parking | None = None


class Recorder:
    """Takes the events of the trace, and passes them on to another recorder if there is one. TraceRecorder
    writes them; other parts that want to see some events extend these methods."""

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
"""Takes a number of bytes and returns that many more bytes of a snapshot."""
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
        """The part's state: a JSON value, and blobs that `restore` takes in the same order."""

    def restore(self, state: Any, take: Take) -> None: ...


class LayerTables:
    """The tables and lists of a kernel in which layers register. A layer is an optional part of a node's
    durable state; the functions that layers wrap are the kernel's own.

    A layer attaches itself to a kernel once, before the first input: it puts its own functions into the
    kernel's tables and lists, or wraps the kernel's functions:

        inputs        replays the layer's own inputs, by their kind in the journal
        frames        handles the layer's own frames, by their first byte
        may_send      raises LocalProtocolError while multicasts are not allowed
        seals         changes a payload before it is journaled, as a signature does
        record_sent   puts a multicast into the trace
        order         gives a multicast to the machine
        encode        makes frames of the machine's messages
        put_each      puts frames into outboxes
        read          decodes an arriving frame into a message, or refuses it
        checks        refuse a decoded message that does not fit the state here
        deliver       takes what the machine delivers to the application
        give          numbers a delivery for the application
        on_sent, on_arrival   are called for each multicast, and for each message that has arrived
        joining, joined, left   are called while a member is taken in, after that, and when one has gone
        steps         functions to call after each frame, as long as something is under way
        barred        links that neither take nor give frames, each with the reason
        release_frames, let_go   let frames leave whose cause is durable, and others that wait for that

    A layer that is not attached costs nothing, and the kernel does not mention it.
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
    """The header of a kernel's snapshot, which has a part for each layer, and the offset where it ends."""
    end = 4 + int.from_bytes(data[:4], "big")
    return json.loads(data[4:end]), end


def read_message(link: int, frame: bytes) -> Any:
    """Decode the message of a frame, whose sender must be the process at the other end of the link."""
    message, size = decode(frame)
    if size != len(frame):
        raise RemoteProtocolError(f"{len(frame) - size} bytes follow the end of a frame")
    via = message.via
    if via is not None and via != link:
        raise RemoteProtocolError(f"a message of process {via} comes from process {link}")
    return message
