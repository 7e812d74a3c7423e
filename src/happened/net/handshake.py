"""The handshake by which the two ends of a link learn who the other is, as a machine without sockets.

    initiator -> responder    HELLO(mode, nonce, my name, the name I want)
    responder -> initiator    HELLO, and in shared-key mode PROOF
    initiator -> responder    in shared-key mode PROOF

Assumes    a byte stream in order. Fresh nonces of 32 bytes. In TLS mode, a stream that TLS has authenticated
           against the group's authority, and the name that its certificate certifies.
Promises   when `peer` is set, the other end is that process: in TLS mode because its certificate says so, in
           shared-key mode because it holds the key and has just used it on both nonces, both names, both
           modes and the version; it wanted to speak with us and, for an initiator, is the process we wanted.
           Frames sealed at one end are opened at the other exactly once and in order, or not at all.
Leaves out deadlines (the driver sets them) and, outside TLS mode, secrecy. Whoever holds the shared key can
           claim any name: the key keeps strangers out of a laboratory, TLS tells members apart. Plaintext
           mode only compares names.
Bounds     at most MAX_HELLO + PROOF_SIZE received bytes are kept that are not yet parsed.
"""

import hashlib
import hmac
import zlib
from collections.abc import Mapping
from enum import Enum, IntEnum
from typing import Any
from urllib.parse import unquote

from ..core.errors import LocalProtocolError, RemoteProtocolError

MAGIC = b"hpnd"
VERSION = 1
NONCE_SIZE = 32
KEY_SIZE = 32
PROOF_SIZE = hashlib.sha256().digest_size
TAG_SIZE = 16
MAX_NAME = 255
"""The longest name, in bytes of UTF-8."""
URI_SCHEME = "happened:"
"""A certificate names a process by a URI: this scheme, then the process's name, percent-quoted."""
MAX_HELLO = len(MAGIC) + 4 + NONCE_SIZE + 2 * (1 + MAX_NAME)


class Mode(IntEnum):
    """How a link is secured; both ends must use the same mode, and neither can be talked into another."""

    PLAINTEXT = 0
    SHARED_KEY = 1
    TLS = 2


Reason = IntEnum("Reason", "MALFORMED VERSION MODE ROLE ADDRESSEE NAME PROOF UNWELCOME REFUSED")
"""Why a handshake failed; the other end is told the number."""
TOLD: dict[int, str] = {
    Reason.MALFORMED: "it does not understand us",
    Reason.VERSION: f"it does not speak version {VERSION} of the handshake",
    Reason.MODE: "its links are secured in another way than ours",
    Reason.ROLE: "it was calling, not answering",
    Reason.ADDRESSEE: "it is not the process we wanted; is its address right?",
    Reason.NAME: "our name is not the one it expects or certifies",
    Reason.PROOF: "its shared key is not ours",
    Reason.UNWELCOME: "it does not know us as a peer",
}
"""What to report when the other end tells us one of these reasons."""


class HandshakeError(RemoteProtocolError):
    """The other end is not who it should be, or does not speak this protocol.

    `answer` must be sent before hanging up, so that a wrong configuration can be diagnosed at both ends.
    """

    def __init__(self, reason: Reason, text: str) -> None:
        super().__init__(text)
        self.reason = reason
        # A refusal is not answered with a refusal.
        self.answer = b"" if reason is Reason.REFUSED else MAGIC + bytes((VERSION, _REFUSAL, reason))


_HELLO, _REFUSAL = 1, 2
"""The kind of a message: its byte after the version."""


_Phase = Enum("_Phase", "HELLO PROOF DONE FAILED")
"""The message that is expected next from the peer, or how the handshake ended."""


class Handshake:
    """One end of a handshake: give `receive` what arrives and send what it returns, until `peer` is set."""

    def __init__(
        self,
        me: str,
        mode: Mode,
        *,
        nonce: bytes,
        wanted: str | None = None,
        key: bytes = b"",
        certified: str | None = None,
    ) -> None:
        """`wanted` is the name of the process that an initiator calls, None for a responder; `certified` is
        the name in the peer's certificate."""
        if len(nonce) != NONCE_SIZE:
            raise LocalProtocolError(f"a nonce has {NONCE_SIZE} bytes, not {len(nonce)}")
        if mode is Mode.SHARED_KEY and len(key) < KEY_SIZE:
            raise LocalProtocolError(
                f"a shared key has at least {KEY_SIZE} bytes; `happened node keys shared` makes one"
            )
        if mode is Mode.TLS and certified is None:
            raise LocalProtocolError("TLS mode needs the name in the peer's certificate")
        self._me = check_name(me)
        self._mode = mode
        self._initiator = wanted is not None
        self._wanted = wanted
        self._key = key
        self._certified = certified
        self._nonce = nonce
        self._hello = b"" if wanted is None else self._make_hello(check_name(wanted))
        self._transcript = b""
        self._phase = _Phase.HELLO
        self._buffer = bytearray()
        self._claimed = ""
        self.peer: str | None = None
        self.channel = Channel()

    def add_checksums(self) -> None:
        """Call when both ends support checksums: from now on, records of plaintext links carry one."""
        if self._mode is Mode.PLAINTEXT:
            self.channel = ChecksummedChannel()

    def begin(self) -> bytes:
        """The first bytes to send; none for a responder."""
        return self._hello

    @property
    def rest(self) -> bytes:
        """The bytes that arrived after the handshake: the beginning of the frames."""
        return bytes(self._buffer) if self._phase is _Phase.DONE else b""

    def receive(self, data: bytes) -> bytes:
        """Take bytes that arrived; returns the answer to send. After a HandshakeError nothing is accepted."""
        if self._phase is _Phase.FAILED:
            raise LocalProtocolError("this handshake has failed; a new connection needs a new one")
        self._buffer += data
        answer = b""
        try:
            if self._phase is _Phase.HELLO and (hello := self._take_hello()) is not None:
                answer = self._greet(hello)
            if self._phase is _Phase.PROOF and len(self._buffer) >= PROOF_SIZE:
                answer += self._check_proof(self._take(PROOF_SIZE))
        except HandshakeError:
            self._phase = _Phase.FAILED
            self._buffer.clear()
            raise
        return answer

    def _make_hello(self, to: str) -> bytes:
        names = b"".join(bytes((len(name),)) + name for name in (self._me.encode(), to.encode()))
        return MAGIC + bytes((VERSION, _HELLO, self._mode, self._initiator)) + self._nonce + names

    def _take(self, size: int) -> bytes:
        taken = bytes(self._buffer[:size])
        del self._buffer[:size]
        return taken

    def _take_hello(self) -> bytes | None:
        """Take a whole hello off the buffer; None if more bytes must come. A wrong byte raises as soon as it
        arrives, not when the hello is complete."""
        held = self._buffer
        start = bytes(held[: len(MAGIC)])
        if start != MAGIC[: len(start)]:
            raise HandshakeError(Reason.MALFORMED, "it does not speak this protocol")
        if len(held) > 4 and held[4] != VERSION:
            raise HandshakeError(
                Reason.VERSION, f"it speaks version {held[4]} of the handshake, we {VERSION}"
            )
        if len(held) > 5 and held[5] == _REFUSAL:
            if len(held) > 6:
                told = TOLD.get(held[6], f"for reason {held[6]}, which we do not know")
                raise HandshakeError(Reason.REFUSED, f"it refused us: {told}")
            return None
        if len(held) > 5 and held[5] != _HELLO:
            raise HandshakeError(Reason.MALFORMED, f"{held[5]} does not begin a hello")
        if len(held) > 6 and held[6] != self._mode:
            raise HandshakeError(Reason.MODE, f"it speaks {_mode(held[6])}, we {_mode(self._mode)}")
        if len(held) > 7 and held[7] != (not self._initiator):
            raise HandshakeError(Reason.ROLE, "both ends claim the same role: our own bytes came back?")
        end = 8 + NONCE_SIZE
        for _ in range(2):
            if len(held) <= end:
                return None
            end += 1 + held[end]
        return self._take(end) if len(held) >= end else None

    def _greet(self, hello: bytes) -> bytes:
        """Check the peer's name and the name that it wants; returns the answer to send."""
        end = 9 + NONCE_SIZE + hello[8 + NONCE_SIZE]
        peer, to = _read_name(hello[9 + NONCE_SIZE : end]), _read_name(hello[end + 1 :])
        if to != self._me:
            raise HandshakeError(Reason.ADDRESSEE, f"{peer!r} wanted {to!r}, and this is {self._me!r}")
        if peer == self._me:
            raise HandshakeError(Reason.NAME, f"it has our own name, {peer!r}: two nodes may not share one")
        if self._wanted is not None and peer != self._wanted:
            raise HandshakeError(Reason.NAME, f"{self._wanted!r} was wanted, and {peer!r} answered")
        if self._mode is Mode.TLS and peer != self._certified:
            raise HandshakeError(
                Reason.NAME, f"its certificate names {self._certified!r}, and it says {peer!r}"
            )
        answer = b""
        if not self._initiator:
            answer = self._hello = self._make_hello(peer)
        if self._mode is not Mode.SHARED_KEY:
            self._phase, self.peer = _Phase.DONE, peer
            return answer
        first, second = (self._hello, hello) if self._initiator else (hello, self._hello)
        self._transcript = hashlib.sha256(first + second).digest()
        self._claimed, self._phase = peer, _Phase.PROOF
        return answer if self._initiator else answer + self._derive("proof", initiator=False)

    def _check_proof(self, proof: bytes) -> bytes:
        if not hmac.compare_digest(proof, self._derive("proof", initiator=not self._initiator)):
            raise HandshakeError(Reason.PROOF, f"{self._claimed!r} does not have our shared key")
        self.channel = SealedChannel(
            outgoing=self._derive("frames", initiator=self._initiator),
            incoming=self._derive("frames", initiator=not self._initiator),
        )
        self._phase, self.peer = _Phase.DONE, self._claimed
        return self._derive("proof", initiator=True) if self._initiator else b""

    def _derive(self, purpose: str, *, initiator: bool) -> bytes:
        """A secret that only holders of the key can make, different for each purpose, direction and pair of
        hellos."""
        label = f"happened {VERSION} {purpose} {'initiator' if initiator else 'responder'}\0".encode()
        return hmac.digest(self._key, label + self._transcript, "sha256")


class Channel:
    """Leaves frames as they are: in TLS mode TLS protects them already, in plaintext mode nothing does."""

    def seal(self, frame: bytes) -> bytes:
        return frame

    def open(self, sealed: bytes) -> bytes:
        """The frame; RemoteProtocolError if it is not the next one our peer sealed."""
        return sealed


class ChecksummedChannel(Channel):
    """Adds to each record a checksum over its bytes and its number, against damage; not against attackers.

    Both ends start to use checksums at the same place of the stream, after their hellos.
    """

    def __init__(self) -> None:
        self._sent = self._opened = 0

    def seal(self, frame: bytes) -> bytes:
        self._sent += 1
        return frame + zlib.crc32(frame, self._sent & 0xFFFFFFFF).to_bytes(4, "big")

    def open(self, sealed: bytes) -> bytes:
        frame, self._opened = sealed[:-4], self._opened + 1
        if zlib.crc32(frame, self._opened & 0xFFFFFFFF).to_bytes(4, "big") != sealed[-4:]:
            raise RemoteProtocolError(f"record {self._opened} was damaged on its way: its checksum is wrong")
        return frame


class SealedChannel(Channel):
    """Adds to each frame a tag over its bytes and its number in this direction of this session.

    The number is not sent: the stream keeps the order, and both ends count. The tag is wrong for a frame that
    was altered, repeated, left out or moved, or that is of another session or direction.
    """

    def __init__(self, *, outgoing: bytes, incoming: bytes) -> None:
        self._outgoing, self._incoming = outgoing, incoming
        self._sent = self._opened = 0

    def seal(self, frame: bytes) -> bytes:
        self._sent += 1
        return frame + _tag(self._outgoing, self._sent - 1, frame)

    def open(self, sealed: bytes) -> bytes:
        frame = sealed[:-TAG_SIZE]
        if not hmac.compare_digest(sealed[-TAG_SIZE:], _tag(self._incoming, self._opened, frame)):
            raise RemoteProtocolError(f"frame {self._opened} is altered, repeated or out of its place")
        self._opened += 1
        return frame


def _tag(key: bytes, number: int, frame: bytes) -> bytes:
    return hmac.digest(key, number.to_bytes(8, "big") + frame, "sha256")[:TAG_SIZE]


def certified_name(certificate: Mapping[str, Any]) -> str:
    """The name of the one process that a verified certificate is for; HandshakeError if it names none or
    several."""
    names = certificate.get("subjectAltName", ())
    own = [value for kind, value in names if kind == "URI" and value.startswith(URI_SCHEME)]
    found = [unquote(uri[len(URI_SCHEME) :]) for uri in own] or [v for kind, v in names if kind == "DNS"]
    if len(found) != 1 or not found[0] or "*" in found[0]:
        raise HandshakeError(Reason.NAME, f"its certificate names {found or 'nobody'}, not one process")
    return str(found[0])


def check_name(name: str) -> str:
    """Return a process's name if links can carry it; LocalProtocolError says what is wrong with it."""
    if not name or not name.isprintable() or len(name.encode(errors="replace")) > MAX_NAME:
        raise LocalProtocolError(f"{name!r} is no name of a process: 1 to {MAX_NAME} bytes, all printable")
    return name


def _read_name(data: bytes) -> str:
    try:
        return check_name(data.decode())
    except (UnicodeDecodeError, LocalProtocolError):
        raise HandshakeError(Reason.MALFORMED, f"{data[:32]!r} is no name of a process") from None


def _mode(code: int) -> str:
    return Mode(code).name.lower().replace("_", "-") if code in Mode._value2member_map_ else f"mode {code}"
