"""What the parts of a started node share, and what each of them does after a step.

hosting.py is the transport's side of a node, sending.py and consumers.py the application's, operations.py its
operator's, observation.py tells about it; node.py puts them together.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from ..core.places import onward_by_link
from ..ordering import Facts
from .batch import Batch
from .commits import Commits
from .connections import Connections
from .engine import Engine
from .errors import NodeError
from .flow import Flow
from .lifecycle import Lifecycle, State
from .limits import Limits
from .membership import Membership, Peer
from .refused_frames import Quarantine
from .site import Site
from .transport import Transport
from .turns import Turns
from .unparking import Unparking
from .when_full import Policies
from .withheld import Acknowledgements

log = logging.getLogger("happened.node")


@dataclass
class Running:
    """A node's engine and what surrounds it.

    turns   where sends must be serialized
    fail    stops the node at once
    room    is set when somebody who waits should look again: there may be room for a multicast; while
            closing, somebody has acknowledged or is gone
    paused  the links that are not read now; `is_leaving`: multicasts wait until the farewell is said
    """

    name: str
    facts: Facts
    limits: Limits
    life: Lifecycle
    engine: Engine
    commits: Commits
    members: Membership
    transport: Transport
    flow: Flow
    connections: Connections
    quarantine: Quarantine
    policies: Policies
    turns: Turns | None
    fail: Callable[[BaseException], None]
    room: asyncio.Event
    loop: asyncio.AbstractEventLoop
    paused: set[int] = field(default_factory=set)
    is_leaving: bool = False

    def __post_init__(self) -> None:
        self.joined = self.engine.members.joined  # as far as the transport knows of them
        self._unparking = Unparking(self.engine, self.commits, self._unparked, self.fail)
        # A broker hands over no more before it has acknowledgements.
        withholds = self.facts.is_agreed and self.transport.acknowledges_for_peers
        self._acknowledgements = Acknowledgements(
            self.engine, self.limits, self._acknowledge, withholds=withholds
        )
        self.know_routes()

    def _acknowledge(self, link: int, number: int) -> None:
        self.transport.durable(self.members.names[link], number)

    @property
    def site(self) -> Site | None:
        """Where this process stands, if a topology says so."""
        return self.engine.sites.site if self.engine.sites is not None else None

    @contextlib.contextmanager
    def input(self) -> Iterator[None]:
        """Inputs of the engine that the application or a peer gives now; those refused change nothing."""
        self.commits.stamp()
        yield
        self.commits.schedule()

    async def flush(self) -> None:
        """Wait until everything so far is journaled, and may be seen by others."""
        self.life.check_takes_input()
        await self.commits.settled()

    def know_routes(self) -> None:
        if (site := self.site) is not None:
            self.flow.onward = onward_by_link(site.place)

    # After each step.

    def released(self, batch: Batch) -> None:
        """A batch is durable: its frames may leave, and those it received are acknowledged."""
        for link in batch.released_through:
            self.transport.wake(self.members.names[link])
        if batch.received_through:
            self._acknowledgements.durable(batch.received_through)
            for link in batch.received_through:
                if link in self.engine.members.gone:
                    self.part_if_done(link)
        if self.engine.links.parked:
            self.unpark()

    def unpark(self) -> None:
        """Bring back from disk what there is room for in outboxes."""
        if self.engine.links.parked:
            self._unparking.notice()

    def _unparked(self, link: int) -> None:
        if self.life.takes_input:
            self.transport.wake(self.members.names[link])
            self.measure_room()

    def measure_room(self) -> None:
        """Let whoever waits for room look again."""
        if self.turns is not None:
            if self.life.is_running:
                self.turns.notice()
            elif self.life.state is State.CLOSING:
                self.turns.pass_on()
        self.room.set()

    def regulate(self) -> None:
        """Pause and resume the reading of links."""
        engine, limits, links = self.engine, self.limits, self.engine.links
        if not (
            self.paused
            or links.full
            or len(engine.unacknowledged) > limits.undelivered
            or engine.unacknowledged_bytes > limits.undelivered_bytes
            or links.held_in_all > limits.held
            or engine.held_bytes > limits.held_bytes
            or engine.staged_entries + links.parking_bytes > limits.staged
        ):
            return
        full = {link: links.weight(link) for link in links.full if link not in engine.gone}
        wanted = self.flow.links_to_pause(
            undelivered=len(engine.unacknowledged),
            undelivered_bytes=engine.unacknowledged_bytes,
            staged=engine.staged,
            outbox_bytes=full.values(),
            held_on_link=links.held,
            held=links.held_in_all,
            held_bytes=engine.held_bytes,
        )
        if self.site is not None:
            wanted |= self.flow.routes_to_pause(full)
        if (awaited := engine.transfers.awaited) is not None:
            wanted.discard(awaited.source)  # which is to give the state that deliveries wait for
        if wanted != self.paused:
            names = self.members.names
            for link in wanted - self.paused:
                self.transport.pause(names[link])
            for link in self.paused - wanted:
                self.transport.resume(names[link])
            self.paused = wanted

    # Peers that come and go.

    def after_a_change(self) -> None:
        """Call those who were admitted; the links of those who had their indices are no more."""
        engine, members = self.engine, self.members
        if engine.members.joined == self.joined:
            return
        self.joined, before = engine.members.joined, members.names
        admitted = members.newly_admitted()
        failed = engine.sites.failed if engine.sites is not None else ()
        for name in (*members.replaced(before), *(members.names[each] for each in failed)):
            self.transport.remove_peer(name)
        for member in admitted:
            self.add_peer(member)
        self.know_routes()
        self.measure_room()

    def add_peer(self, peer: Peer) -> None:
        try:
            self.transport.add_peer(peer.name, peer.address)
        except NodeError as error:
            if not peer.joined:
                raise
            # An address that another process admitted must not stop us, now or at the next start.
            log.error(
                "%s cannot call %s: %s",
                self.name,
                peer.name,
                error,
                extra={"event": "cannot call", "node": self.name, "peer": peer.name, "error": str(error)},
            )

    def part_if_done(self, link: int) -> None:
        """Close the link with a process that has left, if both have everything. Not at once: if the link
        breaks now, the other calls again to hear that we have all of its frames."""
        if self.members.is_done_with(link):
            self.loop.call_later(self.limits.linger, self._part, self.members.names[link])

    def _part(self, peer: str) -> None:
        if self.life.takes_input:
            self.transport.remove_peer(peer)
