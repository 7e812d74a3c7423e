"""Messages signed by their origin: what is signed, where the signature is, and who checks it.

    payload     version (1 byte)  signature (64 bytes)  the application's payload

The signature covers the cluster, the origin's name, its clock, whether the message is ordered, the names of
its destinations in order, and the application's payload. So a process that forwards a message can neither
alter it, nor address it to others, nor pass it off under another name. A new computation needs a new cluster
name, since its clocks begin anew.

An origin signs before its machine takes the message, with the clock that the machine will give it
(`coming_clock`): so the journal has the payload with its signature, and a replay gives the same bytes
although signing draws random numbers. Each process checks an arriving frame before anything else sees it,
with all the messages that it carries (`Message.carries`), even if the process only forwards them. Journaled
messages were checked, and are replayed without a check.

Bounds     a message is checked once while it is among the last REMEMBERED ones: in `flooding` and `cbcast` it
           arrives many times.
Leaves out what processes say for themselves: control information, piggybacks of trackers, labels and
           priorities of incomplete orders. These are as trustworthy as the link or relay they come from.
"""

import hashlib
from collections.abc import Sequence
from typing import Any, Protocol

from ..core.destinations import pack, unpack
from ..core.errors import LocalProtocolError, RemoteProtocolError
from ..core.roster import Roster
from ..ordering import Facts, Machine, having
from ..ordering.capabilities import TellsClock
from ..wire import named_codec, piggybacks
from .kernel import Kernel

SCHEME = "ecdsa-p256-1"
"""The signature scheme, as hellos and journals name it."""
VERSION = 1
SIGNATURE_BYTES = 64
HEAD = 1 + SIGNATURE_BYTES
REMEMBERED = 4096
"""How many messages are not checked again when they come again, by another way or within others."""
ORDERED, UNORDERED = "ordered", "unordered"


class Signer(Protocol):
    """What signs for the process `me` and knows the keys of the others (signatures.py)."""

    @property
    def me(self) -> str: ...
    def sign(self, *parts: str | bytes) -> bytes: ...
    def check(self, name: str, signature: bytes, *parts: str | bytes) -> None: ...


class Signed:
    """The signatures of all messages of the system `cluster`, as one process makes and checks them."""

    def __init__(self, signer: Signer, cluster: str) -> None:
        self._signer, self._cluster = signer, cluster
        self._passed: dict[bytes, None] = {}  # digests of checked messages, the oldest first

    def seal(self, origin: int, clock: int, dests: int, payload: bytes, roster: Roster, kind: str) -> bytes:
        """The payload behind our signature."""
        parts = self._parts(roster, origin, clock, dests, kind)
        return bytes((VERSION,)) + self._signer.sign(*parts, payload) + payload

    def check(self, message: Any, roster: Roster, *, tracked: bool) -> None:
        """Raise RemoteProtocolError unless the origins have signed all that a message carries.
        `tracked`: the tracker's piggybacks wrap the signed payloads."""
        for each in message.carries():
            payload = piggybacks.open_sealed(each.payload).payload if tracked else each.payload
            self.check_one(each, payload, roster, ORDERED)

    def check_one(self, message: Any, payload: bytes, roster: Roster, kind: str) -> None:
        """Check one message of this kind, whose sealed payload is `payload`."""
        sender, clock, dests = message.sender, message.clock, message.dests
        if not 0 <= sender < len(roster) or dests >> len(roster):
            raise RemoteProtocolError(
                f"M({sender}, {clock}) names processes that are not among the {len(roster)} known here"
            )
        if payload[:1] != bytes((VERSION,)) or len(payload) < HEAD:
            raise RemoteProtocolError(
                f"M({sender}, {clock}) has no signature of {roster.name(sender)!r}: give all nodes "
                "`signatures`, or none"
            )
        parts = self._parts(roster, sender, clock, dests, kind)
        digest = hashlib.sha256(repr(parts).encode() + payload).digest()
        if digest not in self._passed:
            self._signer.check(roster.name(sender), payload[1:HEAD], *parts, payload[HEAD:])
            self._passed[digest] = None
            if len(self._passed) > REMEMBERED:
                del self._passed[next(iter(self._passed))]

    def _parts(self, roster: Roster, origin: int, clock: int, dests: int, kind: str) -> tuple[str, ...]:
        names = sorted(map(roster.name, unpack(dests)))
        return ("message", self._cluster, roster.name(origin), str(clock), kind, str(len(names)), *names)


class SignedOrdered:
    """The layer that signs and checks messages; `is_tracked`: piggybacks wrap the signed payloads, except in
    messages outside all orders."""

    def __init__(self, kernel: Kernel, signed: Signed, *, is_tracked: bool) -> None:
        self._kernel, self.signed, self._is_tracked = kernel, signed, is_tracked
        self._clocks = check_protocol(kernel.facts, kernel.machine)
        kernel.seals.insert(0, self._seal)  # first: the application's own payload is signed
        self._read, kernel.read = kernel.read, self._read_checked
        self._deliver, kernel.deliver = kernel.deliver, self._deliver_opened

    def _seal(self, to: Sequence[int], payload: bytes) -> bytes:
        clock, kernel = self._clocks.coming_clock, self._kernel
        return self.signed.seal(kernel.me, clock, pack(to), payload, kernel.roster, ORDERED)

    def seal_unordered(self, dests: int, payload: bytes) -> bytes:
        """`seal` for a message outside all orders, which is the next event of the process."""
        clock, kernel = self._clocks.clock + 1, self._kernel
        return self.signed.seal(kernel.me, clock, dests, payload, kernel.roster, UNORDERED)

    def _read_checked(self, link: int, frame: bytes) -> Any:
        message = self._read(link, frame)
        if not self._kernel.replays:
            self.signed.check(message, self._kernel.roster, tracked=self._is_tracked)
        return message

    def _deliver_opened(self, sender: int, clock: int, payload: bytes) -> None:
        self._deliver(sender, clock, payload[HEAD:])


def check_protocol(facts: Facts, machine: Machine) -> TellsClock:
    """The machine as one that tells its clocks. LocalProtocolError if a protocol registered by others does
    not tell what signatures need to know."""
    kinds = named_codec(facts).MESSAGES if facts.wire is not None else ()
    silent = [f"{kind.__name__} tells nothing by `carries`" for kind in kinds if not hasattr(kind, "carries")]
    clocks = having(machine, TellsClock)
    if clocks is None:
        silent.append("its machine tells no `coming_clock`")
    if clocks is None or silent:
        raise LocalProtocolError(f"messages of {facts.name} cannot be signed: {silent[0]} (docs/runtime.md)")
    return clocks


def check_node(me: str, signatures: Signer, cluster: str) -> None:
    """Refuse signatures by another process, or in a system without a name."""
    if signatures.me != me:
        raise LocalProtocolError(f"signatures of {signatures.me!r} are given to {me!r}: give it its own")
    if not cluster:
        raise LocalProtocolError(
            "signatures need the name of the system, as in Node(cluster=…): otherwise messages of another "
            "one with the same certificates could be passed off as its own"
        )
