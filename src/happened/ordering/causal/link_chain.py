"""What the protocols for serialized sends share: the messages to one process are a chain of links, in which
each follows exactly one other.

`LinkChain.passed` walks along the links as far as they are here, so a message costs O(1) whenever it comes.

Invariant  `last` is the last link passed, and every link before it was; `_waiting` maps a link that is not
           passed to what follows it. Two followers of one link mean that sends were not serialized: the
           second is refused before it changes anything.
"""

from abc import abstractmethod
from collections.abc import Iterable, Iterator
from typing import Any, ClassVar, Generic, TypeVar

from ...core.errors import LocalProtocolError
from ..delay_queue import Named
from ..machine import Effect
from ..process import Process, State, refusal

Link = tuple[int, int]
"""(clock, sender) of a message: the greater, the more recent, since clocks follow Lamport's rule."""

NOTHING: Link = (0, 0)


M = TypeVar("M", bound=Named)


class LinkChain(Generic[M]):
    def __init__(self, n: int) -> None:
        self.last = NOTHING
        self._passed = [0] * n  # clock of the last link of each sender that was passed
        self._waiting: dict[Link, tuple[M, int]] = {}  # with the local event of its arrival

    def __iter__(self) -> Iterator[tuple[Link, M, int]]:
        """What waits: the link it follows, itself, since when."""
        return ((after, message, since) for after, (message, since) in self._waiting.items())

    def newest(self) -> Link:
        """The most recent message that waits."""
        return max((link_of(message) for message, _ in self._waiting.values()), default=NOTHING)

    def is_duplicate(self, message: M, after: Link) -> bool:
        if message.clock <= self._passed[message.sender]:
            return True
        return after in self._waiting and link_of(self._waiting[after][0]) == link_of(message)

    def check(self, message: M, after: Link) -> None:
        clock, sender = after
        if clock >= message.clock:
            raise refusal(message, f"is not later than M({sender}, {clock}), which it follows")
        is_passed = clock <= self._passed[sender] and after != self.last
        if is_passed or after in self._waiting:
            raise refusal(message, f"follows M({sender}, {clock}) here, as another does: not serialized")

    def add(self, message: M, after: Link, since: int) -> None:
        self._waiting[after] = message, since

    def passed(self) -> Iterator[M]:
        """The messages whose turn it is, in order."""
        while self.last in self._waiting:
            message, _ = self._waiting.pop(self.last)
            self.last = link_of(message)
            self._passed[message.sender] = message.clock
            yield message

    def join(self) -> None:
        self._passed.append(0)

    def state(self) -> tuple[Any, ...]:
        return self.last, tuple(self._passed), tuple(self)

    def restore(self, last: Link, passed: Iterable[int], waiting: Iterable[tuple[Link, M, int]]) -> None:
        self.last, self._passed = last, list(passed)
        self._waiting = {after: (message, since) for after, message, since in waiting}


NO_EXPULSION = (
    "a message that nobody but the next one names may be lost with its sender, and with it what it followed"
)
"""Why nobody can be expelled from a protocol for serialized sends."""


class SerializedProcess(Process, Generic[M]):
    """A process of a protocol whose sends are serialized.

    A protocol supplies `multicast`, `latest` with `follow`, and what stands below without a body.
    """

    message_type: ClassVar[type]

    def __init__(self, me: int, n: int) -> None:
        super().__init__(me, n)
        self._chain: LinkChain[M] = LinkChain(n)

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
        clock, sender = self._chain.newest()
        if (clock, sender) > known:
            raise LocalProtocolError(f"M({sender}, {clock}) was sent before: not serialized")

    def receive(self, message: M) -> list[Effect]:
        self.check(message, self.message_type)
        after = self.before(message)
        duplicate = self._chain.is_duplicate(message, after)
        if not duplicate:
            self._chain.check(message, after)
            self.check_serialized(message)
        since = self.arrival()
        if duplicate:
            return []
        self._chain.add(message, after, since)
        return self.pass_links()

    def pass_links(self) -> list[Effect]:
        return [effect for message in self._chain.passed() for effect in self.pass_link(message)]

    def join(self, process: int) -> list[Effect]:
        effects = super().join(process)
        self._chain.join()
        return effects

    def save(self) -> State:
        return {"latest": self.latest, "chain": self._chain.state()}

    def load(self, state: State) -> None:
        last, passed, waiting = state["chain"]
        held = [(after, self.message_type(*fields), since) for after, fields, since in waiting]
        self._chain.restore(last, passed, held)


def link_of(message: Named) -> Link:
    return message.clock, message.sender
