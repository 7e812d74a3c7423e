"""What an application handles: delivered messages, names of sent messages, and what its node reports."""

import asyncio
import contextlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from html import escape
from typing import Any, NamedTuple, Protocol, TypeVar

from ..core.clocks import Causality
from ..core.errors import LocalProtocolError
from ..ordering.causal.incomplete import CausalHistory
from ..tracking import Stamp, facts_of, protocols
from .batch import Delivery
from .payloads import OWN, Opened, Payloads, check_headers
from .qualified import history_from_json
from .state_transfer import STATE_CLOCK

Raised = TypeVar("Raised", bound=BaseException)
REQUEST = OWN + "request"
REPLY = OWN + "re"
"""The headers of a request and of a reply; the reply's header has the name of the request."""
STAMP = OWN + "stamp"
"""The header with the tracker's timestamp of the sending, by which two messages can be compared causally.

The sending is a relevant event right before the multicast, in the same commit. Nothing happens in between, so
the timestamps of two messages are ordered exactly as their sendings are. Unordered messages have none.
"""
SHOWN = 200  # bytes of a payload that a notebook shows


class Sent(str):
    """The name of a sent message; where the application manages histories, with the message's history."""

    history: CausalHistory


def note_sent(error: Raised, name: Sent) -> Raised:
    """Returns the same error, marked so that `was_sent` tells this name."""
    error.__dict__["sent"] = name
    error.add_note(f"{name} was sent")
    return error


@contextlib.contextmanager
def tells_if_cancelled(name: Sent) -> Iterator[None]:
    """Marks a cancellation within this context, so that `was_sent` tells that the message goes out anyway."""
    try:
        yield
    except asyncio.CancelledError as error:
        note_sent(error, name)
        raise


def was_sent(error: BaseException | None) -> Sent | None:
    """The name of the message that goes out even though sending it ended with this error, a cancellation or
    a timeout; None: nothing was sent."""
    while error is not None:
        if isinstance(name := error.__dict__.get("sent"), Sent):
            return name
        error = error.__cause__
    return None


class Pending(NamedTuple):
    """A message that has arrived and cannot be delivered yet."""

    message: str
    waits_for: tuple[str, ...]  # messages not delivered here; itself: it lacks its place in the total order
    since: int  # the seq of the event of its arrival


class Health(NamedTuple):
    """Whether a node lives, and whether it can serve its application now; `problems` says what is wrong."""

    is_live: bool
    is_ready: bool
    problems: tuple[str, ...]


class Giver(Protocol):
    """The consumer that handed a message out, as the message uses it: see consumers.py."""

    payloads: Payloads

    def acknowledge(self, number: int) -> None: ...
    def nack(self, delivery: Delivery, delay: float, attempt: int) -> None: ...
    async def flush(self) -> None: ...
    async def acknowledge_and_multicast(
        self, number: int, to: str | Iterable[str], value: Any, headers: Mapping[str, str] | None
    ) -> Sent: ...


Processing = Callable[["Message"], contextlib.AbstractContextManager[Any]]
"""Makes the span in which an application processes a message (telemetry.py)."""


class Message:
    """A delivered message. Its `name` is the same at its sender and at every destination.

    payload   its bytes, without headers
    attempt   1, and one more for each redelivery after a `nack`, since the process started
    """

    __slots__ = (
        *("_delivery", "_giver", "_has_gone_back", "_sealed", "_processing"),
        *("attempt", "clock", "payload", "sender"),
    )

    def __init__(
        self,
        giver: Giver,
        delivery: Delivery,
        sender: str,
        attempt: int = 1,
        processing: Processing | None = None,
    ) -> None:
        self._giver = giver
        self._delivery = delivery
        self._has_gone_back = False
        self._processing = processing
        self.sender = sender
        self.clock = delivery.clock
        self.payload = delivery.payload
        self.attempt = attempt
        self._sealed: Opened | None = None
        if giver.payloads.has_headers:
            self._sealed = giver.payloads.open(delivery.payload)
            self.payload = self._sealed.body

    @property
    def _opened(self) -> Opened:
        return self._sealed or Opened(self.payload, {})

    @property
    def value(self) -> Any:
        """The payload decoded by the node's codec, anew each time; PayloadError if that fails."""
        return self._giver.payloads.read(self._opened, self.name)

    @property
    def headers(self) -> dict[str, str]:
        """The headers that its sender gave it."""
        return {name: text for name, text in self._opened.headers.items() if not name.startswith(OWN)}

    @property
    def is_request(self) -> bool:
        """Whether its sender waits, or waited, for a reply."""
        return REQUEST in self._opened.headers

    @property
    def reply_to(self) -> str | None:
        """The name of the message that this one answers."""
        return self._opened.headers.get(REPLY)

    @property
    def stamp(self) -> Stamp | None:
        """The tracker's timestamp of its sending; None if the message has none, or an unreadable one."""
        text = self._opened.headers.get(STAMP)
        return None if text is None else stamp_from_text(self.sender, text)

    @property
    def history(self) -> CausalHistory:
        """The history of a message sent `after` this one, where the application manages histories."""
        if not self._delivery.history:
            raise LocalProtocolError("messages come with histories where the application manages them")
        return history_from_json(json.loads(self._delivery.history))

    @property
    def name(self) -> str:
        return f"{self.sender}:{self.clock}"

    @property
    def is_state(self) -> bool:
        """Whether it is the state that a newcomer begins with, given by the process `sender`."""
        return self.clock == STATE_CLOCK

    @property
    def number(self) -> int:
        """Its number among all deliveries here, from 1; a redelivery has the same number."""
        return self._delivery.number

    def _repr_html_(self) -> str:
        """For notebooks: who sent it, its headers, and the beginning of its payload."""
        more = f" … ({len(self.payload):,} bytes)" if len(self.payload) > SHOWN else ""
        told = {"message": self.name, "payload": f"{self.payload[:SHOWN]!r}{more}", **self.headers}
        if self.attempt > 1:
            told["attempt"] = str(self.attempt)
        rows = (f"<tr><th>{escape(name)}</th><td>{escape(text)}</td></tr>" for name, text in told.items())
        return f"<table>{''.join(rows)}</table>"

    def processing(self) -> contextlib.AbstractContextManager[Any]:
        """`with message.processing():` goes around the application's work on the message. With telemetry, it
        makes an OpenTelemetry span, to which messages sent meanwhile belong; otherwise it does nothing."""
        return contextlib.nullcontext() if self._processing is None else self._processing(self)

    async def ack(self) -> None:
        """Say that this message need not be delivered again; returns when that is certain."""
        self.ack_nowait()
        await self._giver.flush()

    def ack_nowait(self) -> None:
        """Acknowledge without waiting: it is certain after the next commit, some milliseconds from now."""
        if self._has_gone_back:
            self._check_in_hand()
        self._giver.acknowledge(self._delivery.number)

    async def ack_and_multicast(
        self, to: str | Iterable[str], value: Any, *, headers: Mapping[str, str] | None = None
    ) -> Sent:
        """Acknowledge this message and multicast another in one commit: after a crash, or if the multicast is
        refused, either both happened or neither. Waits for room first, as `multicast` does."""
        self._check_in_hand()
        check_headers(headers or {})
        return await self._giver.acknowledge_and_multicast(self._delivery.number, to, value, headers)

    async def reply(self, value: Any) -> Sent:
        """Answer the sender, and acknowledge this message in the same commit. Needs headers."""
        if not self._giver.payloads.has_headers:
            raise LocalProtocolError("replies need Node(headers=True), on every node")
        self._check_in_hand()
        number, headers = self._delivery.number, {REPLY: self.name}
        return await self._giver.acknowledge_and_multicast(number, self.sender, value, headers)

    def nack(self, delay: float = 0.0) -> None:
        """Have this message delivered again, to the same consumer, `delay` seconds from now or when the
        process starts again. Later messages do not wait for it."""
        self._check_in_hand()
        self._giver.nack(self._delivery, delay, self.attempt)
        self._has_gone_back = True

    def _check_in_hand(self) -> None:
        if self._has_gone_back:
            raise LocalProtocolError(f"{self.name} was given back by nack(): wait until it comes again")

    def __repr__(self) -> str:
        return f"<Message {self.name}, {len(self.payload)} bytes>"


def relation(one: Message, other: Message) -> Causality:
    """How the sendings of two messages are related causally; LocalProtocolError if that cannot be told."""
    if one.sender == other.sender:
        if one.clock == other.clock:
            return Causality.EQUAL
        return Causality.BEFORE if one.clock < other.clock else Causality.AFTER
    first, second = one.stamp, other.stamp
    if first is None or second is None:
        bare = one if first is None else other
        raise LocalProtocolError(
            f"{bare.name} has no timestamp, so its relation to the other message is not known: "
            'give every node tracker="p1" (or another that tells vectors), headers=True and stamps=True'
        )
    return first.compare(second)


def check_stamps(tracker: str | None, *, headers: bool) -> None:
    """Refuse stamps if the node has no headers, or no tracker that gives vectors."""
    if tracker is None or not headers or "vector" not in facts_of(tracker).tells:
        vectors = ", ".join(name for name, facts in protocols().items() if "vector" in facts.tells)
        raise LocalProtocolError(
            f"stamps need headers=True, and a tracker that tells vectors: one of {vectors}"
        )


def stamp_to_text(stamp: Stamp) -> str:
    return json.dumps([stamp.seq, dict(stamp.vector or {})], separators=(",", ":"), ensure_ascii=False)


def stamp_from_text(process: str, text: str) -> Stamp | None:
    """The timestamp of an event of this process; None if the text is not a timestamp."""
    try:
        seq, vector = json.loads(text)
        return Stamp(process, int(seq), {str(name): int(count) for name, count in vector.items()})
    except (ValueError, TypeError, AttributeError, RecursionError):
        return None
