"""What the protocols for serialized sends share: the messages to one process are a chain of links, in which
each follows exactly one other.

Messages are passed along the links as far as they are here, so one costs O(1) whenever it comes.

Invariant  `_last` is the last link passed, and every link before it was; `_waiting` maps a link that is not
           passed to what follows it. Two followers of one link mean that sends were not serialized: the
           second is refused before it changes anything.
"""

from abc import abstractmethod
from typing import Any, ClassVar, Generic, TypeVar

from ...core.errors import LocalProtocolError
from ..machine import Effect
from ..process import Process, refusal
from ..snapshots import NUMBERS, Form, kept, reader, valued

Link = tuple[int, int]
"""(clock, sender) of a message: the greater, the more recent, since clocks follow Lamport's rule."""

NOTHING: Link = (0, 0)

NO_EXPULSION = (
    "a message that nobody but the next one names may be lost with its sender, and with it what it followed"
)
"""Why nobody can be expelled from a protocol for serialized sends."""

M = TypeVar("M", bound=Any)


def link_of(message: Any) -> Link:
    return message.clock, message.sender


def waiting(kind: type) -> Form:
    """Messages of this type by the link that each follows, with the local event of its arrival."""
    return Form(
        lambda n: {},
        lambda held: tuple((after, *each) for after, each in held.items()),
        lambda links: {after: (reader(kind)(fields), since) for after, fields, since in links},
    )


class SerializedProcess(Process, Generic[M]):
    """A process of a protocol whose sends are serialized.

    A protocol supplies `multicast`, `latest` with `follow`, `_waiting`, and what stands below without a body.
    """

    message_type: ClassVar[type]

    _last: Link = kept(valued(NOTHING), within="chain")
    _passed: list[int] = kept(
        NUMBERS, within="chain"
    )  # clock of the last link of each sender that was passed
    _waiting: dict[Link, tuple[M, int]]

    @property
    @abstractmethod
    def latest(self) -> Any:
        """What is known here of the sends before: to be handed over with the right to send."""

    @abstractmethod
    def before(self, message: M) -> Link:
        """The message that this one follows here, or a refusal."""

    @abstractmethod
    def check_serialized(self, message: M) -> None:
        """Refuse a message unless it knows of what we know, or what we know knows of it.

        Of two serialized sends, the later knows the earlier.
        """

    @abstractmethod
    def pass_link(self, message: M) -> list[Effect]:
        """It is the turn of this message."""

    def check_right(self, known: Link) -> None:
        """Refuse to send while a message waits here that is more recent than those we know of."""
        clock, sender = max((link_of(message) for message, _ in self._waiting.values()), default=NOTHING)
        if (clock, sender) > known:
            raise LocalProtocolError(f"M({sender}, {clock}) was sent before: not serialized")

    def receive(self, message: M) -> list[Effect]:
        self.check(message, self.message_type)
        after = self.before(message)
        known = self._waiting.get(after)
        duplicate = message.clock <= self._passed[message.sender] or (
            known is not None and link_of(known[0]) == link_of(message)
        )
        if not duplicate:
            self._check_link(message, after)
            self.check_serialized(message)
        since = self.arrival()
        if duplicate:
            return []
        self._waiting[after] = message, since
        return self.pass_links()

    def _check_link(self, message: M, after: Link) -> None:
        clock, sender = after
        if clock >= message.clock:
            raise refusal(message, f"is not later than M({sender}, {clock}), which it follows")
        is_passed = clock <= self._passed[sender] and after != self._last
        if is_passed or after in self._waiting:
            raise refusal(message, f"follows M({sender}, {clock}) here, as another does: not serialized")

    def pass_links(self) -> list[Effect]:
        """Pass the messages whose turn it is, in order."""
        effects: list[Effect] = []
        while self._last in self._waiting:
            message, _ = self._waiting.pop(self._last)
            self._last = link_of(message)
            self._passed[message.sender] = message.clock
            effects += self.pass_link(message)
        return effects
