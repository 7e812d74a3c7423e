"""Who takes part: names and indices, groups, which peers a node calls, and which it can work with.

The engine's roster numbers members, the same everywhere; a name is never given to a second member, even when
the first has left. The engine keeps what must survive: who joined, who left, and the incarnation of each
peer's journal. This module translates between names and indices, and refuses peers and names by which two
processes, or two lives of one process, could be confused. The node, not this module, talks to the transport.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from ..core.errors import LocalProtocolError
from .engine import Engine
from .errors import OldJournal, PeerRefused
from .handshake import check_name
from .limits import Limits
from .lives import FORGOTTEN, Life, life_of
from .terms import Terms
from .transport import Hello, Transport

EVERYBODY = "*"

NO_TERMS = Terms()


class Peer(NamedTuple):
    """A process to talk with. If it `joined` at run time, its address may be one that we cannot use."""

    name: str
    address: str
    joined: bool


def addresses_of(peers: Mapping[str, str] | Iterable[str], transport: Transport | None) -> Mapping[str, str]:
    """The peers' addresses by name; names suffice where a transport finds peers without addresses."""
    if isinstance(peers, Mapping):
        return peers
    names = [peers] if isinstance(peers, str) else list(peers)
    for name in names:
        if transport is None:
            raise LocalProtocolError(f"give an address for {name!r}, as in peers={{{name!r}: 'host:port'}}")
        transport.check_address(name, "")
    return dict.fromkeys(names, "")


class InitialMembers:
    """The members that a node is told before it starts, checked; `Node` documents the arguments."""

    def __init__(
        self,
        name: str,
        peers: Mapping[str, str],
        members: Sequence[str] | None,
        groups: Mapping[str, Iterable[str]] | None,
        limits: Limits,
    ) -> None:
        self.name = check_name(name)
        self.peers = {check_name(peer): address for peer, address in peers.items() if peer != name}
        self.members = tuple(members) if members is not None else tuple(sorted({name, *self.peers}))
        self.groups = {group: tuple(names) for group, names in (groups or {}).items()}
        self.most_peers = limits.peers
        if name not in self.members or not self.peers.keys() <= set(self.members):
            raise LocalProtocolError(
                f"members {', '.join(self.members)} must have {name!r} and all its peers"
            )
        if len(self.peers) > limits.peers:
            raise LocalProtocolError(f"{len(self.peers)} peers; the limit is {limits.peers}")
        for group, names in self.groups.items():
            if group in self.members:
                raise LocalProtocolError(f"{group!r} is a member and cannot be the name of a group")
            if not names:
                raise LocalProtocolError(f"group {group!r} has no members")

    def index(self, name: str) -> int:
        """The index of a member, for options of the ordering protocol that name members."""
        if name not in self.members:
            raise LocalProtocolError(f"{name!r} is no member; members: {', '.join(self.members)}")
        return self.members.index(name)


class Membership:
    """The members of a running node, after its journal was replayed.

    `index` and `names` are looked up for every message: the index of a name, and the names by index.
    """

    def __init__(
        self,
        initial: InitialMembers,
        engine: Engine,
        protocol: str,
        incarnation: bytes,
        terms: Terms = NO_TERMS,
    ) -> None:
        self._initial, self._engine, self._terms = initial, engine, terms
        self._protocol, self._incarnation = protocol, incarnation
        self._frame_limits: dict[str, int] = {}  # by peer, for those that have told theirs
        self.smallest_limit: int | None = None  # of `_frame_limits`
        self._number_members()
        # Per link, the last frame that our journal knew when we started; until the peer says what it has.
        self._began_with = {link: outbox.last for link, outbox in engine.outboxes.items()}

    def _number_members(self) -> None:
        roster = self._engine.roster
        self.names = list(map(roster.name, range(len(roster))))
        self.index = {name: index for index, name in enumerate(self.names)}

    # Which peers to talk with.

    def peers(self) -> list[Peer]:
        """The peers to call when the node starts: departed ones only if a farewell waits for them."""
        engine = self._engine
        found = []
        for name, address in {**self._initial.peers, **engine.members.addresses}.items():
            link = self.index.get(name)
            if link is not None and not self.is_done_with(link) and self.is_linked(link):
                found.append(Peer(name, address, joined=name in engine.members.addresses))
        return found

    def is_linked(self, link: int) -> bool:
        """Whether our site links us with a process, or did when we last had frames for it."""
        sites = self._engine.sites
        return sites is None or self.names[link] in sites.site.links or bool(self._engine.outboxes[link])

    def newly_admitted(self) -> list[Peer]:
        """The members that others have admitted since the last call; with a topology, all members that it
        links us with now and whose address a change has told."""
        known, sites, addresses = set(self.names), self._engine.sites, self._engine.members.addresses
        self._number_members()
        names = [name for name in self.names if name not in known] if sites is None else sites.site.links
        return [Peer(name, addresses[name], joined=True) for name in names if name in addresses]

    def replaced(self, before: Sequence[str]) -> list[str]:
        """Of these names, those whose index now belongs to another member."""
        return [name for name in before if name not in self.index]

    def is_done_with(self, link: int) -> bool:
        """Whether a process has left, has all our frames, and we have all of its, up to its farewell, so that
        its link can be closed. An expelled process may never say farewell: then its link stays open."""
        engine = self._engine
        return link in engine.gone and link not in engine.members.awaited and not engine.outboxes[link]

    def destinations(self, to: str | Iterable[str]) -> tuple[int, ...]:
        """The indices of these members and of the present members of these groups, each once; EVERYBODY is
        the group of all members that are present now and have an application."""
        roster, groups = self._engine.members.roster, self._initial.groups
        found: dict[int, None] = {}
        for name in (to,) if isinstance(to, str) else to:
            if name in groups:
                for member in groups[name]:
                    if member in roster:
                        found[roster.index(member)] = None
            elif name == EVERYBODY and name not in roster:
                found |= dict.fromkeys(map(roster.index, self.with_applications()))
            else:
                found[roster.index(name)] = None
        return tuple(found)

    def with_applications(self) -> list[str]:
        """The present members that have an application."""
        sites = self._engine.sites
        routers = () if sites is None else sites.site.forwarders
        return [name for name in self._engine.roster if name not in routers]

    # Changes of members.

    def join(self, name: str, address: str) -> tuple[str, ...]:
        """Admit a process; returns all members there ever were, in the order of their indices."""
        check_name(name)
        if len(self._engine.present_links()) >= self._initial.most_peers:
            raise LocalProtocolError(f"there are {self._initial.most_peers} peers, which is the limit")
        self._engine.join(name, address)
        self._number_members()
        return tuple(self.names)

    def is_newest(self, name: str, address: str) -> bool:
        """Whether this process was the last to be admitted: `names` still is what `join` returned for it."""
        joined = self._engine.members.addresses
        return name in self._engine.roster and [*joined.items()][-1:] == [(name, address)]

    def leave(self) -> None:
        self._engine.leave(self._initial.name)

    @property
    def everybody_said_farewell(self) -> bool:
        """Whether every present member has confirmed that we left, so that no more frames come from it, and
        has all our frames: it may have heard of our departure from others, before those frames came."""
        members = self._engine.members
        return all(map(members.has_parted, members.present_links()))

    def expel(self, name: str) -> None:
        self._engine.leave(name)

    # Which peers to believe.

    def hello(self, peer: str) -> Hello:
        engine, link = self._engine, self.index[peer]
        tracking, sites, lives = engine.tracking, engine.sites, engine.links.lives
        # A process that joined later was started with more members than the first ones.
        is_founder = peer in self._initial.members
        durable = engine.inboxes[link].durable
        return Hello(
            self._incarnation,
            engine.members.incarnations.get(link, b""),
            self._protocol,
            tuple(self.names),
            tracker=tracking.facts.name if tracking is not None else "",
            topology=sites.site.digest if sites is not None else "",
            # Frames for an expelled process may have been dropped: then the count says nothing of it.
            confirmed=0 if self._was_expelled(peer) else engine.outboxes[link].acknowledged,
            terms=self._terms if is_founder else self._terms._replace(founders=""),
            lives=lives.ours(link),
            heard=lives.heard(link, durable),
            has=durable,
        )

    def _was_expelled(self, peer: str) -> bool:
        departure = self._engine.members.departures.get(self.index[peer])
        return departure is not None and departure.expelled

    def check_hello(self, peer: str, theirs: Hello) -> bool:
        """Raise PeerRefused if we cannot work with a peer that says this hello, OldJournal if we must stop.
        True: we meet it for the first time, and the engine is to remember its incarnation."""
        if peer not in self.index:
            raise PeerRefused(f"{peer!r} is not a member here")
        me, ours = self._initial.name, self.hello(peer)
        sites = self._engine.sites
        if sites is not None and sites.has_failed(peer):
            raise PeerRefused(
                f"{peer!r} was declared to have failed for good, and the others go on without it: let it "
                "join under a new name, by a change of the topology"
            )
        ours.terms.check_system(peer, theirs.terms)
        if theirs.protocol != ours.protocol:
            raise PeerRefused(f"{peer!r} runs protocol {theirs.protocol!r} and {me!r} {ours.protocol!r}")
        if theirs.tracker != ours.tracker:
            raise PeerRefused(
                f"{peer!r} tracks causality by {theirs.tracker or 'nothing'} and {me!r} by "
                f"{ours.tracker or 'nothing'}: give all nodes the same `tracker`"
            )
        if theirs.topology not in (sites.digests(peer) if sites is not None else {""}):
            raise PeerRefused(
                f"{peer!r} has {_topology(theirs)}, and {me!r} has {_topology(ours)}: give every process the "
                "same topology file"
            )
        former, gone = self._engine.roster.former, self._engine.gone
        if any(
            # One of us may not know yet that the index of a departed process was given again.
            a != b and a not in former and index not in gone
            for index, (a, b) in enumerate(zip(theirs.members, ours.members, strict=False))
        ):
            raise PeerRefused(
                f"{peer!r} lists members {', '.join(theirs.members)}, and {me!r} "
                f"{', '.join(ours.members)}: they must be the same, in the same order"
            )
        ours.terms.check_setup(peer, theirs.terms)
        if ours.knows and theirs.incarnation != ours.knows:
            raise PeerRefused(
                f"{peer!r} came back without its journal: its clocks are lost, and what it sends now could "
                "be taken for what it sent before. Restore its journal, or let it join under a new name"
            )
        if theirs.knows and theirs.knows != ours.incarnation:
            raise PeerRefused(
                f"{peer!r} knows {me!r} with another journal; restore that, or join under a new name"
            )
        self.check_confirmed(peer, theirs.confirmed)
        self._check_shown(peer, theirs.has, theirs.heard)
        self._check_staged(peer, theirs.lives)
        if theirs.terms.frame != self._frame_limits.get(peer, 0):
            self._frame_limits[peer] = theirs.terms.frame
            self.smallest_limit = self.longest_frame(self._engine.outboxes)
        return not ours.knows

    def check_confirmed(self, peer: str, number: int) -> None:
        """Raise OldJournal if we confirmed frames, after a commit, that our journal does not know."""
        if number > (known := self._engine.inboxes[self.index[peer]].durable):
            me = self._initial.name
            raise OldJournal(f"{me!r} had {number} frames of {peer!r}, and its journal knows {known}: {_OLD}")

    def _check_shown(self, peer: str, number: int, life: bytes) -> None:
        """Raise OldJournal if the frames of ours that a calling peer has show that our journal is old. We
        must know before we call it ourselves: until then we would take frames meant for the newest journal.
        If the peer has fewer than it had, its own journal is old; it hears that when we call."""
        link = self.index[peer]
        if number and number >= self._engine.outboxes[link].acknowledged:
            self._check_number(peer, number)
            self.check_life(peer, number, life)

    def _check_number(self, peer: str, number: int) -> None:
        """Raise OldJournal if a peer, when we first meet it after our start, has more of our frames than our
        journal had at the start. It cannot have frames that we numbered since then, so the numbers beyond are
        of other frames, and ours under the same numbers would be dropped."""
        link = self.index[peer]
        if number > (known := self._began_with.get(link, number)):
            raise self._old(peer, number, f"whose journal knows {known}")

    def _check_staged(self, peer: str, told: Sequence[Life]) -> None:
        """Raise PeerRefused if frames are not journaled yet that came from this peer with another journal: we
        can tell the peer of them only once they are journaled."""
        link, links = self.index[peer], self._engine.links
        inbox = links.inboxes[link]
        if not told or inbox.durable == inbox.received_through:
            return
        if life_of(inbox.received_through, told) not in (FORGOTTEN, links.lives.last_heard(link)):
            raise PeerRefused(
                f"{peer!r} calls with another journal than before, and frames that it sent then are not "
                "journaled yet: once they are, it will hear of them"
            )

    def longest_frame(self, links: Iterable[int]) -> int | None:
        """The longest frame that all these peers take, as far as they have told; None: none has told."""
        told = (self._frame_limits.get(self.names[link], 0) for link in links)
        return min((limit for limit in told if limit), default=None)

    def check_resuming(self, peer: str, number: int, life: bytes = b"") -> None:
        """Raise PeerRefused if the number of our frames that a peer has, when a connection begins, shows that
        the peer has forgotten some; OldJournal if the number, or the life of the last of these frames, shows
        that we have."""
        me, link = self._initial.name, self.index[peer]
        # A peer never says less than on an earlier connection, unless it has forgotten frames.
        if number < (before := self._engine.outboxes[link].acknowledged):
            if self._was_expelled(peer):  # and the frames for it were dropped
                raise PeerRefused(
                    f"{peer!r} was expelled, and {me!r} goes on without it: let it join under a new name"
                )
            raise PeerRefused(
                f"{peer!r} had {before} frames of {me!r} and now has {number}: its journal is an old "
                "copy, or has lost its end. Restore the newest, or let it join under a new name"
            )
        self._check_number(peer, number)
        self.check_life(peer, number, life)
        if self._began_with.pop(link, None) is not None:
            # Which frames had left before our restart is not recorded: release those that the peer has.
            self._engine.outboxes[link].release(number)

    def check_life(self, peer: str, number: int, life: bytes) -> None:
        """Raise OldJournal if the last of our frames that a peer has, of this number, is of a life that our
        journal lacks. `number` must not be below what the peer had acknowledged when we started."""
        if why := self._engine.links.lives.unknown(self.index[peer], number, life):
            raise self._old(peer, number, f"the last {why}")

    def check_acknowledged(self, peer: str, number: int) -> None:
        """Raise OldJournal if a peer has frames of ours that we never released."""
        released = self._engine.outboxes[self.index[peer]].released
        if number > released:
            raise self._old(peer, number, f"whose journal knows {released}")

    def _old(self, peer: str, number: int, why: str) -> OldJournal:
        return OldJournal(f"{peer!r} has {number} frames of {self._initial.name!r}, {why}: {_OLD}")


_OLD = "it is an old copy, or has lost its end. Restore the newest one, or join under a new name"


def _topology(hello: Hello) -> str:
    return f"topology {hello.topology[:12]}…" if hello.topology else "no topology"
