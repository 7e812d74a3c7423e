"""A node as its transport sees it: what a transport may ask and must report (transport.py)."""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from ..core.errors import RemoteProtocolError
from .errors import EngineFault, OldJournal
from .lifecycle import State
from .link import Sendable
from .lives import Life, life_of
from .running import Running
from .transport import Hello

T = TypeVar("T")


class Hosting:
    """The calls of a transport to its node, for frames and for peers. A call that raises OldJournal stops
    the node."""

    def __init__(self, running: Running) -> None:
        self._running = running
        self._engine, self._members, self._commits = running.engine, running.members, running.commits
        self.name, self._links = running.name, running.engine.links
        self.frames_received = self.frames_duplicate = self.refused = 0
        # Per link, the peer's lives, until frames of the last one have come: there is no later one then.
        self._lives: dict[int, Sequence[Life]] = {}

    def hello(self, peer: str) -> Hello:
        """The hello that we say to this peer."""
        hello = self._members.hello(peer)
        if self._running.transport.acknowledges_for_peers:
            return hello
        # A broker's acknowledgement says nothing of the peer's journal, and a hello it keeps may be old.
        return hello._replace(confirmed=0, has=0)

    def check(self, peer: str, hello: Hello) -> None:
        """Raise PeerRefused if we cannot work with a peer that says this hello. Nothing is remembered."""
        self._checked(self._members.check_hello, peer, hello)

    def meet(self, peer: str, hello: Hello) -> None:
        """Check a hello, and remember the peer's journal for good: only once the transport has authenticated
        it and, where the two ends can answer each other, the peer has accepted our hello too."""
        is_new = self._checked(self._members.check_hello, peer, hello)
        if is_new:
            with self._running.input():
                self._engine.meet(self._members.index[peer], hello.incarnation)

    def outbox(self, peer: str) -> Sendable:
        """Our frames for a peer that may be sent now and are not acknowledged."""
        return self._links.outboxes[self._members.index[peer]]

    def _checked(self, check: Callable[..., T], peer: str, *shown: Any) -> T:
        """Call `check`; stop the node if a peer shows that our journal is old. Peers on other links would
        take new frames that reuse numbers for the frames that we sent earlier under those numbers."""
        try:
            return check(peer, *shown)
        except OldJournal as error:
            self._running.fail(error)
            raise

    def confirmed(self, peer: str, number: int) -> None:
        """Our receipt at a broker confirms frames of this peer up to this link number. Raises PeerRefused if
        our journal does not have them."""
        self._checked(self._members.check_confirmed, peer, number)

    def resumes(self, peer: str, number: int, life: bytes = b"") -> None:
        """A connection begins: the peer says that it has our frames up to this link number, the last of them
        numbered in this life of ours. Raises PeerRefused if one of us has forgotten frames."""
        self._checked(self._members.check_resuming, peer, number, life)
        self.freed(peer, number)

    def shows(self, peer: str, number: int, life: bytes) -> None:
        """The peer says that it now has our frames up to this link number, more than when the connection
        began, the last of this life of ours. Raises OldJournal if our journal shows no such frame."""
        self._checked(self._members.check_life, peer, number, life)

    def freed(self, peer: str, number: int) -> None:
        """Our frames up to this number are durable elsewhere. A lower number than before changes nothing."""
        running = self._running
        if running.life.failure is not None:
            return
        link = self._members.index[peer]
        if number > self._links.outboxes[link].released:
            self._checked(self._members.check_acknowledged, peer, number)
        self._commits.stamp()
        if self._engine.free(link, number):
            running.quarantine.passed(peer, True, number)
            self._commits.schedule()
            running.unpark()
            for other in self._engine.let_go():
                running.transport.wake(self._members.names[other])
            running.measure_room()
            if running.paused:
                running.regulate()
            running.part_if_done(link)

    def expects(self, peer: str) -> int:
        """The link number of the next frame from this peer."""
        return self._links.inboxes[self._members.index[peer]].received_through + 1

    def received(self, peer: str) -> int:
        """Frames of this peer up to this link number are journaled."""
        return self._links.inboxes[self._members.index[peer]].durable

    def numbered_in(self, peer: str, lives: Sequence[Life]) -> None:
        """The peer numbered the frames that arrive from now on in these lives of its own."""
        self._lives[self._members.index[peer]] = lives

    def arrived(self, peer: str, frames: Sequence[tuple[int, bytes]]) -> None:
        """Take frames with their link numbers, in order. Raises RemoteProtocolError for a gap or a bad frame:
        the frames before it are taken, and the transport must close the link (or refuse the frame)."""
        running, engine = self._running, self._engine
        if not running.life.takes_input:
            return
        link = self._members.index[peer]
        inbox, receive = self._links.inboxes[link], engine.receive
        self._commits.stamp()
        before, is_refused = inbox.received_through, False
        try:
            for number, frame in frames:
                if number == inbox.received_through + 1 or inbox.is_new(number):
                    receive(link, frame)
        except RemoteProtocolError as error:
            self.refused += 1
            is_refused = True
            if number == inbox.received_through + 1:
                running.quarantine.put(peer, False, number, len(frame), str(error))
            raise
        except EngineFault as error:
            running.fail(error)
        else:
            self.frames_duplicate += len(frames) - (inbox.received_through - before)
        finally:
            if new := inbox.received_through - before:
                self.frames_received += new
                if (lives := self._lives.get(link)) is not None:
                    # The life of the last frame taken is remembered in the same batch as the frame.
                    life = life_of(inbox.received_through, lives)
                    if life != self._links.lives.last_heard(link):
                        engine.hear_life(link, life)
                    if not lives or life == lives[-1][0]:
                        del self._lives[link]
                self._commits.schedule()
                if engine.members.joined != running.joined:
                    running.after_a_change()
                running.regulate()
                if running.quarantine.by_peer:
                    running.quarantine.passed(peer, False, inbox.received_through)
            elif not is_refused and not engine.is_dirty and not self._commits.is_under_way:
                running.transport.durable(peer, inbox.durable)

    def set_aside(self, peer: str, number: int, reason: str) -> None:
        """Do not send our frame of this link number for now: the peer has refused it, or would."""
        frames = self.outbox(peer).after(number - 1, 1)
        size = len(frames[0][1]) if frames else 0
        self._running.quarantine.put(peer, True, number, size, reason)

    def connected(self, peer: str, outgoing: bool) -> None:
        """Note for logs and statistics that a connection can carry frames."""
        self._running.connections.opened(peer, outgoing)

    def disconnected(self, peer: str, outgoing: bool, reason: str) -> None:
        """A connection has ended or could not be made. `peer` is an address if the other end never said its
        name."""
        is_member = peer in self._members.index
        self._running.connections.closed(peer, outgoing, reason, is_member=is_member)
        if self._running.life.state is State.CLOSING:
            self._running.room.set()
