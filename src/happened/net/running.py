"""The parts of a started node that others share, and what each part does after a step.

hosting.py is a node's interface for its transport, sending.py and consumers.py for its application,
operations.py for its operator; observation.py reports about it; node.py puts them together.

Parked     Frames on disk are read back into memory while half of an outbox's limit is free, as many as fit;
           one reading at a time for each link. Rows on disk are deleted once the peer has acknowledged their
           frames.
Withheld   Where a message waits for its place among others, the message that gives that place may come behind
           it on the same link: the link must be read, however much is held (`Flow`). So back-pressure works
           on the senders: frames are taken and journaled as ever, and acknowledged once there is room. Frames
           that are not acknowledged stay in the senders' outboxes; once these are full, the applications
           there wait, while the protocol's own messages still go. So a process holds what its limits allow,
           plus an outbox of each sender, plus another each time that a sender reconnects, since it is told
           then how far it has come. Bytes are counted anew when the number of messages changed by 1/8 + SOME.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import partial

from ..core.errors import LocalProtocolError
from ..core.places import onward_by_link
from ..ordering import Facts, Relays, able
from ..ordering.capabilities import Expires
from .batch import Batch
from .commits import Commits
from .connections import Connections
from .engine import Engine
from .errors import NodeError
from .lifecycle import Lifecycle, State
from .limits import Flow, Limits, Policies
from .link import Outbox
from .membership import Membership, Peer
from .refused_frames import Quarantine
from .serialized import Turns
from .site import Site
from .transport import Transport

log = logging.getLogger("happened.node")

SOME = 16


@dataclass
class Running:
    """A node's engine and what surrounds it.

    turns   decides when this node may send, where sends must be serialized
    fail    stops the node at once
    room    is set when waiting tasks should look again: there may be room for a multicast, or, while closing,
            a peer has acknowledged or is gone
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
    connections: Connections
    policies: Policies
    turns: Turns | None
    fail: Callable[[BaseException], None]
    loop: asyncio.AbstractEventLoop
    room: asyncio.Event = field(default_factory=asyncio.Event)
    quarantine: Quarantine = field(default_factory=Quarantine)
    paused: set[int] = field(default_factory=set)
    is_leaving: bool = False

    def __post_init__(self) -> None:
        self.joined = self.engine.members.joined  # the number of members joined that the transport knows of
        self.flow = Flow(self.limits, relays=self.facts.copies.relays is Relays.COORDINATOR)
        # A broker hands over no further messages before it has acknowledgements.
        self._withholds = self.facts.is_agreed and self.transport.acknowledges_for_peers
        self._due: dict[int, int] = {}  # by link, the number whose acknowledgement is withheld
        self._counted = self._counted_bytes = 0  # held messages and their bytes, when last counted
        self._unparking: set[int] = set()
        self.know_routes()

    @property
    def site(self) -> Site | None:
        return self.engine.sites.site if self.engine.sites is not None else None

    @contextlib.contextmanager
    def input(self) -> Iterator[None]:
        """Surround inputs that the application or a peer gives the engine; refused ones change nothing."""
        self.commits.stamp()
        yield
        self.commits.schedule()

    async def flush(self) -> None:
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
            self._acknowledge(batch.received_through)
            for link in batch.received_through:
                if link in self.engine.members.gone:
                    self.part_if_done(link)
        if self.engine.links.parked:
            self.unpark()

    def _acknowledge(self, received: Mapping[int, int]) -> None:
        """Acknowledge frames of a durable batch: per link, the number up to which they came."""
        if self._withholds:
            self._due.update(received)
            if self._holds_too_much():
                return
            received, self._due = self._due, {}
        for link, number in received.items():
            self.transport.durable(self.members.names[link], number)

    def _holds_too_much(self) -> bool:
        machine, limits = self.engine.machine, self.limits
        held = machine.pending_count
        if held <= limits.held and (
            self._counted_bytes > limits.held_bytes or abs(held - self._counted) > self._counted // 8 + SOME
        ):
            self._counted, self._counted_bytes = held, machine.pending_bytes
        return held > limits.held or self._counted_bytes > limits.held_bytes

    def unpark(self) -> None:
        links = self.engine.links
        for link in links.parked - self._unparking:
            outbox = links.outboxes[link]
            if outbox.wants_parked(links.full_above):
                self._unparking.add(link)
                after = outbox.loaded
                future = self.commits.read_parked(link, after, links.full_above - outbox.bytes)
                future.add_done_callback(partial(self._unparked, link, outbox, after))

    def _unparked(self, link: int, outbox: Outbox, after: int, done: "asyncio.Future[list[bytes]]") -> None:
        self._unparking.discard(link)
        links = self.engine.links
        if done.cancelled():
            return
        if (error := done.exception()) is not None:
            self.fail(error)
        elif links.outboxes.get(link) is outbox:  # not the outbox of a later owner of the index
            links.unpark(link, after + 1, done.result())
            if self.life.takes_input:
                self.transport.wake(self.members.names[link])
                self.measure_room()
            self.unpark()

    def measure_room(self) -> None:
        """Wake the tasks that wait for room, so that they look again."""
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
            wanted.discard(awaited.source)  # it is to give the state that deliveries wait for
        names = self.members.names
        for link in wanted - self.paused:
            self.transport.pause(names[link])
        for link in self.paused - wanted:
            self.transport.resume(names[link])
        self.paused = wanted

    # Peers that join and leave.

    def after_a_change(self) -> None:
        """Call newly admitted peers, and drop the links of the earlier owners of their indices."""
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
            # A bad address that another process admitted must not stop us, now or at the next start.
            more = {"event": "cannot call", "node": self.name, "peer": peer.name, "error": str(error)}
            log.error("%s cannot call %s: %s", self.name, peer.name, error, extra=more)

    def part_if_done(self, link: int) -> None:
        """Close the link with a process that has left, if both have all frames. Wait a little first: if the
        link breaks now, the peer calls again to hear that we have all of its frames."""
        if self.members.is_done_with(link):
            self.loop.call_later(self.limits.linger, self._part, self.members.names[link])

    def _part(self, peer: str) -> None:
        if self.life.takes_input:
            self.transport.remove_peer(peer)


log = logging.getLogger("happened.node")


def check_expiry(seconds: float, facts: Facts) -> None:
    """Refuse a bound that is not valid, or a protocol that forgets nothing by the clock."""
    if not isinstance(seconds, int | float) or isinstance(seconds, bool) or not seconds > 0:
        raise LocalProtocolError(f"`expiry` is a number of seconds above 0, not {seconds!r}")
    if facts.name not in able(Expires):
        raise LocalProtocolError(
            f"{facts.name} keeps nothing that a bound on delivery would let it forget; `expiry` is for "
            f"{', '.join(able(Expires))}"
        )


class Expiry:
    """Forgetting by the clock: with a bound Δ on the time in which every message is delivered, what a process
    knew Δ ago is delivered everywhere, and need not be sent any more (Rodrigues & Veríssimo 1995, §4.5).

    Assumes    every message is delivered at all its destinations within Δ (`seconds`) of its multicast, even
               when a process is away meanwhile. Where that is false, a message may be delivered before one
               that it follows; nothing is lost or repeated.
    Promises   `expire` is called at intervals of at least Δ, as an input of the engine within `input`. It is
               not called while a frame of our own has been unacknowledged since the last call: that shows
               that the assumption is false.
    """

    def __init__(
        self, engine: Engine, seconds: float, input: Callable[[], AbstractContextManager[None]]
    ) -> None:
        self._engine, self._seconds, self._input = engine, seconds, input
        self._sent: dict[str, int] = {}  # per peer: our last frame when `expire` was last called
        self._is_late = False
        self._next = asyncio.get_running_loop().call_later(seconds, self._tick)

    def stop(self) -> None:
        self._next.cancel()

    def _tick(self) -> None:
        self._next = asyncio.get_running_loop().call_later(self._seconds, self._tick)
        engine = self._engine
        outboxes = {engine.roster.name(link): engine.outboxes[link] for link in engine.present_links()}
        late = [name for name, each in outboxes.items() if each.acknowledged < self._sent.get(name, 0)]
        if late and not self._is_late:
            told = {"node": engine.name, "peer": ", ".join(late), "reason": "nothing is forgotten"}
            log.warning("late", extra=told)
        self._is_late = bool(late)
        if not late:
            self._sent = {name: each.last for name, each in outboxes.items()}
            with self._input():
                engine.expire()
