"""Plays a small program of an ordering protocol, or of a tracker, step by step.

A schedule says when the processes of a program act and when a copy arrives, one step per line: `0 sends`,
`event at 0`, `2 receives M(0,1)`, `2 receives M(0,1) from 1`. The story chooses steps at random, follows a
written schedule, or takes the oldest step first.

Assumes    a protocol that is safe under the schedule; its violations are reported too, not hidden. The
           application gets a tracker's messages at once, in whatever order they arrive.
Out        the scenes of a narrator; their text is itself a schedule, which gives the same story again.
"""

import re
from abc import ABC, abstractmethod
from collections.abc import Iterable
from random import Random
from typing import Any, NamedTuple, Self

from .. import tracking
from ..core.destinations import unpack
from ..core.effects import Send
from ..core.errors import CausalityError, LocalProtocolError, require
from ..core.orders import Order
from ..ordering import Effect, Machine, create, notation, protocols
from ..ordering.explaining import knowledge
from .narrator import Narrator, message_name
from .programs import EVENT, MOST_PROCESSES, Program, set_text
from .scenes import NOT_DELIVERED, REFUSED, Scene, document
from .terrain import Terrain, relays
from .tracker_narrator import TrackerNarrator

UNITS = "An entry 5,1:{6} means that M(5,1) may not have been delivered at 6 yet."
HISTORIES = (
    "H has the messages that precede the next one, with their destinations; C says to whom each of them has "
    "been reported; D has the last one delivered of each sender."
)
HOPS = "Entries are about hops: h(4,1) is the first message of 4 to its neighbours, whatever it brings."
NOTATION = (
    "(1,2) is the second relevant event of 1, and the entry that tells of it; a third number is IP: 1 while "
    "it has no successor. VC[k] counts the events of k in the causal past (with a bound, DV[k] may "
    "miss some); row j of M says which entries j is known to have."
)
NUMBERED = r"(?:\d+\.\s*)?"
WHEN = r"(?:\s+\[[\d.]+ s\])?"  # as in the story of a simulated run
SENDS = re.compile(rf"{NUMBERED}(\d+) (?:sends|would send)\b.*")
HAPPENS = re.compile(rf"{NUMBERED}event (?:\(\d+,\d+\) )?at (\d+){WHEN}")
RECEIVES = re.compile(
    rf"{NUMBERED}(\d+) (?:receives|would receive) (.+?)(?: from (\d+))?(?: in h\(\d+,\d+\))?"
    rf"(?:, again|, and refuses it: .*)?{WHEN}"
)
PASSED_OVER = re.compile(  # comments, what a step led to, and what stands above a story
    r"\s.*|#.*|\d+ delivers .*|[\w:-]+: \d+: .*|where .*|null event .*|"
    rf"{NOT_DELIVERED}.*|"
)


class PacketInFlight(NamedTuple):
    source: int
    to: int
    names: tuple[str, ...]  # the first as in a story, others as `explore` prints them
    message: Any


class Play(ABC):
    """What the processes of a program have yet to do, and the packets in flight. `fifo`: copies on one link
    arrive in the order sent."""

    def __init__(self, program: Program, protocol: str, needs_fifo: bool, *, fifo: bool) -> None:
        require(fifo or not needs_fifo, f"{protocol} needs FIFO links; add --fifo")
        self.program = program
        self.protocol = protocol
        self._fifo = fifo
        self._ahead = [list(actions) for actions in program.sends]
        self._packets: list[PacketInFlight] = []
        self.scenes: list[Scene] = []

    @abstractmethod
    def act(self, process: int, action: int) -> None:
        """Let a process send to the set `action`, or let an event happen there."""

    @abstractmethod
    def take_in(self, packet: PacketInFlight) -> None:
        """Let a copy arrive."""

    def play(self, seed: int) -> Self:
        """Take steps at random until nothing is left to do."""
        dice = Random(seed)
        while choices := self._choices():
            self._take(dice.choice(choices))
        return self

    def drain(self) -> Self:
        """Perform all remaining steps, oldest first."""
        while choices := self._choices():
            self._take(choices[0])
        return self

    def follow(self, lines: Iterable[str]) -> list[str]:
        """Take the steps that these lines name, in the form that `happened explore` or a story prints.
        Returns the lines that are neither steps nor comments. LocalProtocolError if a step is not possible,
        or if no line is a step."""
        others, before = [], len(self.scenes)
        for line in map(str.rstrip, lines):
            if not self._step(line) and not PASSED_OVER.fullmatch(line):
                others.append(line)
        first = f": {others[0]!r} is none" if others else ""
        require(
            len(self.scenes) > before,
            f"no line is a step of this program{first}. Write one step a line, such as `0 sends` and "
            "`2 receives M(0,1)`",
        )
        return others

    def _step(self, line: str) -> bool:
        """Take the step that a line names; returns False if it names none."""
        text = line.strip()
        if found := SENDS.fullmatch(text):
            self._act_next(line, int(found[1]), event=False)
        elif found := HAPPENS.fullmatch(text):
            self._act_next(line, int(found[1]), event=True)
        elif found := RECEIVES.fullmatch(text):
            to, name, source = found.groups()
            self._take(self._packet(line, int(to), name.replace(", ", ","), int(source) if source else None))
        return found is not None

    def _act_next(self, line: str, process: int, *, event: bool) -> None:
        why = f"{line!r}: {process} has nothing more to {'do' if event else 'send'}"
        require(process in self._active(), why)
        is_event = self._ahead[process][0] == EVENT
        due = "has an event" if is_event else "sends"
        require(is_event is event, f"{line!r}: what {process} does next in the program is that it {due}")
        self._take(process)

    def _choices(self) -> list[int | PacketInFlight]:
        """The steps that are possible next: a copy arrives, or a process acts."""
        return [*self._arrivals(), *self._active()]

    def _take(self, choice: int | PacketInFlight) -> None:
        if isinstance(choice, int):
            self.act(choice, self._ahead[choice].pop(0))
        else:
            self._packets.remove(choice)
            self.take_in(choice)

    def _active(self) -> list[int]:
        return [process for process, actions in enumerate(self._ahead) if actions]

    def _arrivals(self) -> list[PacketInFlight]:
        """The packets that may arrive next. Of control messages with the same name and link, only the first:
        a schedule could not distinguish them."""
        heads: dict[tuple[Any, ...], PacketInFlight] = {}
        for packet in self._packets:
            link = packet.source, packet.to
            heads.setdefault(link if self._fifo else (*link, packet.names), packet)
        return list(heads.values())

    def _packet(self, line: str, to: int, name: str, source: int | None) -> PacketInFlight:
        for packet in self._arrivals():
            if packet.to == to and name in packet.names and source in (None, packet.source):
                return packet
        what_is = ", ".join(f"{p.names[0]} from {p.source} to {p.to}" for p in self._arrivals()) or "nothing"
        raise LocalProtocolError(f"{line!r}: that is not on its way; what is: {what_is}")


class Story(Play):
    """The machines of one program, the packets in flight, and the scenes so far.

    `order`: the order by which deliveries are judged, by default the protocol's promise.
    `tick_at_deliveries`: clocks count deliveries too, as in the worked example of the textbook chapter.
    `terrain`: if its protocol relays, the terrain's routers are processes too, after those of the program.
    """

    def __init__(
        self,
        program: Program,
        protocol: str,
        *,
        order: Order | None = None,
        fifo: bool = False,
        tick_at_deliveries: bool = False,
        terrain: Terrain | None = None,
    ) -> None:
        super().__init__(program, protocol, protocols()[protocol].assumes.fifo_links, fifo=fifo)
        self.names, self._machines = _cast(program, protocol, terrain)
        self._narrator = Narrator(self._machines, order=order, tick=tick_at_deliveries)
        self.scenes = self._narrator.scenes

    def document(self) -> dict[str, Any]:
        """The whole story as a JSON value."""
        how = explained(self.protocol, self._machines)
        return document(
            self.protocol, str(self.program), self.names, self.scenes, how, self._narrator.undelivered()
        )

    @property
    def is_stuck(self) -> bool:
        """Whether nothing more can happen although a message is undelivered and no refusal explains this."""
        refused = any(scene.kind == REFUSED for scene in self.scenes)
        return not refused and not self._choices() and bool(self._narrator.undelivered())

    def act(self, process: int, action: int) -> None:
        try:
            clock, effects = self._machines[process].multicast(tuple(unpack(action)), b"")
        except CausalityError as error:
            what = f"{process} would send to {set_text(action)}, and is refused: {error}"
            self._narrator.refused(process, what)
            return
        self._put_on_links(process, effects)
        self._narrator.sent(process, clock, action, effects)

    def take_in(self, packet: PacketInFlight) -> None:
        try:
            effects = self._machines[packet.to].receive(packet.message)
        except CausalityError as error:
            what = (
                f"{packet.to} would receive {packet.names[0]} from {packet.source}, and refuses it: {error}"
            )
            self._narrator.refused(packet.to, what, packet.message)
            return
        self._put_on_links(packet.to, effects)
        self._narrator.arrived(packet.to, packet.source, packet.message, effects)

    def _put_on_links(self, process: int, effects: list[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Send):
                message = effect.message
                about = notation.key_name((message.sender, message.clock))
                names = message_name(message), f"{type(message).__name__} of {about}"
                self._packets.append(PacketInFlight(process, effect.to, names, message))


def _cast(program: Program, protocol: str, terrain: Terrain | None) -> tuple[list[str], list[Machine]]:
    """The names of all processes, and a machine for each."""
    n = len(program.sends)
    if terrain is None:
        return list(map(str, range(n))), [create(protocol, me, n) for me in range(n)]
    able = ", ".join(name for name in sorted(protocols()) if relays(name))
    why = f"{protocol} sends directly and can make no use of a topology; these relay: {able}"
    require(relays(protocol), why)
    known = ", ".join(f"{p} is {name}" for p, name in enumerate(terrain.names[: terrain.applications]))
    why = f"{terrain.source} has no process {n - 1} with an application; {known}"
    require(n <= terrain.applications, why)
    size = terrain.processes(protocol)
    why = f"{terrain.source} has {size} processes, and a story can show {MOST_PROCESSES}"
    require(size <= MOST_PROCESSES, why)
    make = terrain.factory(protocol)
    return numbered(terrain.names), [make(me, size) for me in range(size)]


def numbered(names: Iterable[str]) -> list[str]:
    return [f"{process} {name}" for process, name in enumerate(names)]


def explained(protocol: str, machines: Iterable[Machine]) -> str:
    """Explains how to read the structures that the protocol's machines remember."""
    titles = {title for machine in machines for title, _ in knowledge(machine)}
    if not titles:
        return "This protocol does not tell what it remembers."
    return (HISTORIES if "H" in titles else UNITS) + (f" {HOPS}" if relays(protocol) else "")


class TrackerStory(Play):
    """The trackers of one program, the messages in flight, and the scenes so far."""

    def __init__(self, program: Program, protocol: str, *, fifo: bool = False) -> None:
        super().__init__(program, protocol, tracking.facts_of(protocol).fifo_links, fifo=fifo)
        n = len(program.sends)
        _check(program)
        self._trackers = [tracking.create(protocol, me, n) for me in range(n)]
        self._narrator = TrackerNarrator(protocol, self._trackers)
        self.scenes = self._narrator.scenes
        self._sent = [0] * n  # per process, the number of its messages so far

    def document(self) -> dict[str, Any]:
        """The whole story as a JSON value."""
        names = [str(process) for process in range(len(self._trackers))]
        return document(self.protocol, str(self.program), names, self.scenes, NOTATION)

    def act(self, process: int, action: int) -> None:
        tracker = self._trackers[process]
        if action == EVENT:
            self._narrator.event(process, tracker.relevant())
            return
        to = list(unpack(action))
        try:
            piggybacks = dict(zip(to, tracker.on_multicast(to), strict=True))
        except LocalProtocolError as error:
            what = f"{process} would send to {notation.dests(to)}, and is refused: {error}"
            self._narrator.refused(process, what)
            return
        self._sent[process] += 1
        key = process, self._sent[process]
        for each, piggyback in piggybacks.items():
            self._packets.append(PacketInFlight(process, each, (notation.key_name(key),), (key, piggyback)))
        self._narrator.sent(process, key[1], piggybacks)

    def take_in(self, packet: PacketInFlight) -> None:
        key, piggyback = packet.message
        self._trackers[packet.to].on_receive(packet.source, piggyback)
        self._narrator.received(packet.to, key, piggyback)


def _check(program: Program) -> None:
    for process, actions in enumerate(program.sends):
        to_itself = any(action >> process & 1 for action in actions)
        require(not to_itself, f"{process} sends to itself, and trackers know what they know already")
    require(
        any(action == EVENT for actions in program.sends for action in actions),
        "nothing is to be timestamped: write e for a relevant event, as in `0: e {1}; 1: e {0}`",
    )
