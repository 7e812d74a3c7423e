"""A small program played step by step, with what each machine knew and why it forgot it.

Assumes    a protocol that is safe under the schedule; what it does wrong is told too, not hidden.
Out        one Scene per step: what happened, what messages carried, what is held and for what, the log
           afterwards, and each unit that was dropped with the reason.
Reasons    come from the events alone, not from the machine: a unit (s, t, d) is redundant once the delivery
           of M(s,t) at d is in the causal past (Propagation Constraint 1 of Kshemkalyani & Singhal 1998), or
           a message to d sent causally after M(s,t) is (Propagation Constraint 2). Jang et al. (1997) call
           these *delivered* and *replaced*, and *just* or *already* so: by this event, or known of before it.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from random import Random
from typing import Any, NamedTuple

from ..core.destinations import pack, unpack
from ..core.effects import Deliver
from ..core.errors import CausalityError, LocalProtocolError
from ..ordering import Effect, Machine, Unit, create, notation, protocols
from ..ordering.machine import MessageKey
from .programs import Program, set_text

SENDS = re.compile(r"(?:\d+\.\s*)?(\d+) sends\b.*")
RECEIVES = re.compile(r"(?:\d+\.\s*)?(\d+) receives (?:\w+ of )?M\((\d+), ?(\d+)\)(?: from (\d+))?")


class Dropped(NamedTuple):
    """A unit that the log had, or the message brought, and that is not in the log afterwards."""

    unit: Unit
    rule: str  # PC1 or PC2; empty if neither explains it
    reason: str

    def __str__(self) -> str:
        source, clock, to = self.unit
        return f"{source},{clock}:{{{to}}} dropped{f' ({self.rule})' if self.rule else ''}: {self.reason}"


@dataclass(frozen=True, slots=True)
class Scene:
    """One step of a story."""

    number: int
    process: int
    what: str
    name: MessageKey | None  # the message that is sent or arrives
    source: int | None  # where it comes from, if it arrives
    to: tuple[int, ...]  # where it goes, if it is sent
    carried: tuple[str, ...]
    delivered: tuple[MessageKey, ...]
    overtaken: tuple[MessageKey, ...]  # what causal order wanted delivered first
    held: tuple[str, ...]
    log: str | None  # None if the protocol tells none
    dropped: tuple[Dropped, ...]

    def lines(self) -> Iterator[str]:
        yield f"{self.number:>3}. {self.what}"
        yield from (f"       carries {each}" for each in self.carried)
        yield from (f"       {self.process} delivers {notation.key_name(key)}" for key in self.delivered)
        yield from (f"       OVERTAKING {notation.key_name(key)}" for key in self.overtaken)
        yield from (f"       {self.process} holds {each}" for each in self.held)
        yield from (f"       {each}" for each in self.dropped)
        if self.log is not None:
            yield f"       log of {self.process}: {self.log}"


class Packet(NamedTuple):
    source: int
    to: int
    message: Any


class Story:
    """The machines of one program, what is on its way, and what has happened.

    With `tick_at_deliveries` clocks count deliveries too, as in the worked example of the textbook chapter.
    """

    def __init__(
        self, program: Program, protocol: str, *, fifo: bool = False, tick_at_deliveries: bool = False
    ) -> None:
        n = len(program.sends)
        if protocols()[protocol].fifo_links and not fifo:
            raise LocalProtocolError(f"{protocol} needs FIFO links; add --fifo")
        self.program, self.protocol = program, protocol
        self._fifo = fifo
        self._ticks = tick_at_deliveries
        self._machines: list[Machine] = [create(protocol, me, n) for me in range(n)]
        self._unsent = [list(sends) for sends in program.sends]
        self._packets: list[Packet] = []
        self._arrived: dict[tuple[int, MessageKey], Any] = {}  # by process and name
        self._truth = _Truth(n)
        self.scenes: list[Scene] = []

    # Schedules.

    def play(self, seed: int) -> "Story":
        """Take steps at random until nothing is left to do."""
        dice = Random(seed)
        while choices := self._choices():
            self._take(dice.choice(choices))
        return self

    def follow(self, lines: Iterable[str]) -> "Story":
        """Take the steps that these lines name, as `happened explore` prints them; others are passed over.
        LocalProtocolError if one is not possible."""
        for line in map(str.strip, lines):
            if found := SENDS.fullmatch(line):
                process = int(found[1])
                if process not in self._senders():
                    raise LocalProtocolError(f"{line!r}: {process} has nothing more to send")
                self.send(process)
            elif found := RECEIVES.fullmatch(line):
                to, sender, clock, source = (int(word) if word else None for word in found.groups())
                self.arrive(self._packet(line, to, (sender, clock), source))
        return self

    def drain(self) -> "Story":
        """Let everything that is left happen, oldest first."""
        while choices := self._choices():
            self._take(choices[0])
        return self

    def _choices(self) -> list["int | Packet"]:
        """What may happen next: a copy arrives, or a process sends."""
        return [*self._arrivals(), *self._senders()]

    def _take(self, choice: "int | Packet") -> None:
        if isinstance(choice, int):
            self.send(choice)
        else:
            self.arrive(choice)

    def _senders(self) -> list[int]:
        return [process for process, sends in enumerate(self._unsent) if sends]

    def _arrivals(self) -> list[Packet]:
        if not self._fifo:
            return list(self._packets)
        heads: dict[tuple[int, int], Packet] = {}
        for packet in self._packets:
            heads.setdefault((packet.source, packet.to), packet)
        return list(heads.values())

    def _packet(self, line: str, to: int | None, key: tuple[Any, Any], source: int | None) -> Packet:
        for packet in self._arrivals():
            message = packet.message
            if packet.to == to and (message.sender, message.clock) == key and source in (None, packet.source):
                return packet
        under_way = ", ".join(f"{_name(p)} from {p.source} to {p.to}" for p in self._arrivals()) or "nothing"
        raise LocalProtocolError(f"{line!r}: that is not on its way; what is: {under_way}")

    # Steps.

    def send(self, process: int) -> Scene:
        to = self._unsent[process].pop(0)
        machine = self._machines[process]
        before = machine.log_units()
        try:
            clock, effects = machine.multicast(tuple(unpack(to)), b"")
        except CausalityError as error:
            return self._refused(process, f"{process} would send to {set_text(to)}, and is refused: {error}")
        key = process, clock
        earlier = set(self._truth.past[process])
        self._truth.send(key, to)
        packets = self._packets_of(process, effects)
        own = [packet for packet in packets if (packet.message.sender, packet.message.clock) == key]
        what = f"{process} sends {notation.key_name(key)}→{set_text(to)}"
        added = frozenset((*key, d) for d in unpack(to))
        return self._scene(
            process,
            what if own else f"{what}, and keeps it back",
            effects,
            (before or frozenset()) | added,
            earlier,
            name=key,
            to=tuple(unpack(to)),
            carried=_carried(own),
        )

    def arrive(self, packet: Packet) -> Scene:
        self._packets.remove(packet)
        machine = self._machines[packet.to]
        before = machine.log_units() or frozenset()
        what = f"{packet.to} receives {_name(packet)}"
        if packet.source != packet.message.sender:
            what += f" from {packet.source}"
        try:
            effects = machine.receive(packet.message)
        except CausalityError as error:
            return self._refused(packet.to, f"{what}, and refuses it: {error}")
        self._packets_of(packet.to, effects)
        key = packet.message.sender, packet.message.clock
        if packet.message.to:
            self._arrived[packet.to, key] = packet.message
        return self._scene(
            packet.to,
            what,
            effects,
            before,
            set(self._truth.past[packet.to]),
            name=key if packet.message.to else None,
            source=packet.source,
        )

    def _packets_of(self, process: int, effects: list[Effect]) -> list[Packet]:
        sent = [Packet(process, e.to, e.message) for e in effects if not isinstance(e, Deliver)]
        self._packets += sent
        return sent

    def _refused(self, process: int, what: str) -> Scene:
        return self._scene(process, what, [], frozenset(), set())

    def _scene(
        self,
        process: int,
        what: str,
        effects: list[Effect],
        known: frozenset[Unit],
        earlier: set[Any],
        *,
        name: MessageKey | None = None,
        source: int | None = None,
        to: tuple[int, ...] = (),
        carried: tuple[str, ...] = (),
    ) -> Scene:
        machine = self._machines[process]
        delivered = [(effect.sender, effect.clock) for effect in effects if isinstance(effect, Deliver)]
        overtaken = [late for key in delivered for late in self._truth.deliver(process, key)]
        for message in (self._arrived.pop((process, key), None) for key in delivered):
            if message is not None:
                known |= message.units() | {(message.sender, message.clock, d) for d in message.to}
        if self._ticks:
            for _ in delivered:
                machine.tick()
        after = machine.log_units()
        lost = [] if after is None else sorted(known - after)
        dropped = [self._truth.why_redundant(process, unit, earlier) for unit in lost]
        scene = Scene(
            len(self.scenes) + 1,
            process,
            what,
            name,
            source,
            to,
            carried,
            tuple(delivered),
            tuple(overtaken),
            tuple(map(notation.holding, machine.pending())),
            None if (log := machine.log_entries()) is None else notation.entries(log),
            tuple(dropped),
        )
        self.scenes.append(scene)
        return scene


class _Truth:
    """Who knows of which sends and deliveries: sets of events, and nothing of what is carried."""

    def __init__(self, n: int) -> None:
        self.past: list[set[Any]] = [set() for _ in range(n)]  # (key,): sent; (key, d): delivered at d
        self._to: dict[MessageKey, int] = {}
        self._past_of: dict[MessageKey, frozenset[Any]] = {}

    def send(self, key: MessageKey, to: int) -> None:
        past = self.past[key[0]]
        self._to[key], self._past_of[key] = to, frozenset(past)
        past.add((key,))

    def deliver(self, process: int, key: MessageKey) -> list[MessageKey]:
        """Note a delivery; returns the messages to this process, causally earlier, that it overtakes."""
        past, before = self.past[process], self._past_of.get(key, frozenset())
        overtaken = [
            event[0]
            for event in before
            if len(event) == 1 and self._to[event[0]] >> process & 1 and (event[0], process) not in past
        ]
        past |= before
        past |= {(key,), (key, process)}
        return sorted(overtaken)

    def why_redundant(self, process: int, unit: Unit, earlier: set[Any]) -> Dropped:
        source, clock, to = unit
        key, past = (source, clock), self.past[process]
        if (key, to) in past:
            how = "already" if (key, to) in earlier else "just"
            return Dropped(unit, "PC1", f"{notation.key_name(key)} is {how} delivered at {to}")
        later = [
            event[0]
            for event in past
            if len(event) == 1 and self._to[event[0]] >> to & 1 and (key,) in self._past_of[event[0]]
        ]
        if later:
            how = "already" if any((each,) in earlier for each in later) else "just"
            by = notation.key_name(min(later))
            return Dropped(unit, "PC2", f"{how} replaced: {by}, sent later to {to}, tells of it")
        return Dropped(unit, "", "neither delivered nor replaced, as far as this process can know")


def read_program(text: str) -> Program:
    """A program as `explore` prints it: `0: {1,2} {0}; 2: {1}`. LocalProtocolError says what is wrong."""
    sends: dict[int, list[int]] = {}
    for part in filter(None, (part.strip() for part in re.split(r"[;\n]", text))):
        found = re.fullmatch(r"(\d+)\s*:((?:\s*\{\s*\d+(?:\s*,\s*\d+)*\s*\})+)", part)
        if not found:
            raise LocalProtocolError(
                f"{part!r} is no part of a program: write who sends to whom, as in `0: {{1,2}}; 1: {{2}}`"
            )
        sets = [pack(map(int, re.findall(r"\d+", each))) for each in re.findall(r"\{[^}]*\}", found[2])]
        sends.setdefault(int(found[1]), []).extend(sets)
    if not sends:
        raise LocalProtocolError("an empty program: write who sends to whom, as in `0: {1,2}; 1: {2}`")
    n = max(*sends, *(to.bit_length() - 1 for sets in sends.values() for to in sets)) + 1
    if n > MOST_PROCESSES:
        raise LocalProtocolError(f"process {n - 1} is beyond the {MOST_PROCESSES} that a story can show")
    return Program(tuple(tuple(sends.get(process, ())) for process in range(n)))


MOST_PROCESSES = 64


def _name(packet: Packet) -> str:
    message = packet.message
    if message.to:
        return notation.key_name((message.sender, message.clock))
    return notation.described(message)


def _carried(packets: list[Packet]) -> tuple[str, ...]:
    """What the copies of one message carry, told apart by destination where they differ."""
    by_text: dict[str, list[int]] = {}
    for packet in packets:
        by_text.setdefault(notation.carried(packet.message), []).append(packet.to)
    if len(by_text) == 1:
        return tuple(by_text)
    return tuple(f"{text}  (to {', '.join(map(str, to))})" for text, to in by_text.items())
