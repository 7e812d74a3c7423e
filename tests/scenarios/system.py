"""The player of scenarios about ordering protocols: packets arrive when the scenario says so.

Judged on the way by `History`, which knows events and nothing of what is carried: a delivery that overtakes
another is said in the transcript, so that a wrong one cannot be recorded unseen.
"""

import json
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from happened.core.destinations import pack
from happened.core.effects import Deliver
from happened.core.errors import CausalityError
from happened.ordering import Held, Machine, ProtocolMessage, create, having, notation, protocols
from happened.ordering.capabilities import TellsUnits
from happened.ordering.explaining import knowledge
from oracles.history import History
from scenarios.language import ScenarioError, names

WORD = r"[\w'-]+"


class Packet(NamedTuple):
    label: str
    source: str
    to: str
    message: ProtocolMessage


class System:
    COMMANDS = (
        (r"protocol (?P<protocol>\S+), processes (?P<members>[^,]+)(?P<options>(, .+)?)", "start"),
        (r"clocks tick at deliveries", "tick_at_deliveries"),
        (rf"(?P<name>{WORD}) starts with log (?P<log>.+)", "start_with_log"),
        (rf"(?P<name>{WORD}) sends (?P<label>{WORD}) to (?P<to>.+)", "send"),
        (
            rf"(?P<label>(notice of )?{WORD}|notice) arrives at (?P<to>{WORD})( from (?P<source>{WORD}))?"
            r"(?P<again> again)?",
            "arrive",
        ),
        (r"the rest arrives", "drain"),
        (rf"show log of (?P<name>{WORD})", "show_log"),
        (rf"show what (?P<name>{WORD}) holds", "show_held"),
        (r"show what is under way", "show_packets"),
        (r"show deliveries", "show_deliveries"),
    )

    def __init__(self) -> None:
        self.protocol = ""
        self._names: list[str] = []
        self._machines: dict[str, Machine] = {}
        self._labels: dict[tuple[int, int], str] = {}
        self._packets: list[Packet] = []
        self._arrived: list[Packet] = []
        self._history = History()
        self._ticking = False

    # Setting up

    def start(self, protocol: str, members: str, options: str) -> Iterator[str]:
        self._names = names(members)
        given = [option.partition(" ") for option in options.split(", ")[1:]]
        options_of = [dict[str, object]() for _ in self._names]
        for word, _, text in given:
            for me, value in enumerate(self._option(word, text)):
                options_of[me].update(value)
        return self._create(protocol, options_of)

    def _option(self, word: str, text: str) -> Iterable[dict[str, object]]:
        """What each process is created with, by the words of an option."""
        everybody = len(self._names)
        match word:
            case "groups":
                return [{"groups": [self._indices(group.split("+")) for group in text.split()]}] * everybody
            case "overlay":
                return [
                    {"overlay": [tuple(self._indices(link.split("-"))) for link in text.split()]}
                ] * everybody
            case "links":
                from happened.topology import derive, from_document

                links, separators = (
                    [each.split("-") for each in part.split()] for part in text.partition(" parted by ")[::2]
                )
                graph = from_document({"processes": self._names, "links": links, "separators": separators})
                return [{"place": place} for place in derive(graph, names=self._names).places]
            case "with":
                return [{text: True}] * everybody
        raise ScenarioError(f"no option is called {word!r}; there are: groups, overlay, links, with")

    def _create(self, protocol: str, options_of: list[dict[str, object]]) -> Iterator[str]:
        if protocol not in protocols():
            raise ScenarioError(f"no ordering protocol is called {protocol!r}")
        self.protocol = protocol
        n = len(self._names)
        self._machines = {
            name: create(protocol, me, n, **options)
            for me, (name, options) in enumerate(zip(self._names, options_of, strict=True))
        }
        numbered = all(name == f"p{me}" for me, name in enumerate(self._names))
        yield (
            f"p0 to p{n - 1} are 0 to {n - 1}"
            if numbered
            else ", ".join(f"{name} is {me}" for me, name in enumerate(self._names))
        )

    def tick_at_deliveries(self) -> Iterator[str]:
        self._ticking = True
        return iter(())

    def start_with_log(self, name: str, log: str) -> Iterator[str]:
        """By way of its snapshot."""
        machine = self._machine(name)
        listed = []
        for entry in log.split():
            key, _, members = entry.partition(":")
            sender, clock = key.split(",")
            sets = pack(int(member) for member in members.strip("{}∅").split(",") if member)
            listed.append([int(sender), int(clock), sets])
        state = json.loads(machine.snapshot())
        machine.restore(json.dumps(state | {"log": [len(self._names), listed]}).encode())
        return self.show_log(name)

    # What happens

    def send(self, name: str, label: str, to: str) -> Iterator[str]:
        machine = self._machine(name)
        if label in self._labels.values():
            raise ScenarioError(f"{label} was sent before; give this message a name of its own")
        destinations = self._indices(names(to))
        try:
            clock, effects = machine.multicast(destinations, label.encode())
        except CausalityError as error:
            yield f"refused: {error}"
            return
        key = (self._names.index(name), clock)
        self._labels[key] = label
        self._history.send(key[0], key, destinations)
        own = [e for e in effects if not isinstance(e, Deliver) and self._is(e.message, key)]
        said = f"{name} sends {label}, M({key[0]},{clock})→{notation.dests(destinations)}"
        yield said + (self._carried(destinations, own) if own else ", and keeps it back")
        yield from self._perform(name, effects, saying_sends=[e for e in effects if e not in own])

    def arrive(self, label: str, to: str, source: str | None, again: str | None) -> Iterator[str]:
        self._machine(to)
        packets = self._arrived if again else self._packets
        found = [p for p in packets if (p.label, p.to) == (label, to) and source in (None, p.source)]
        if not found:
            here = (
                ", ".join(sorted({f"{p.label} from {p.source}" for p in packets if p.to == to})) or "nothing"
            )
            raise ScenarioError(f"no {label} is on its way to {to}; what is: {here}")
        if len({packet.source for packet in found}) > 1:
            sources = ", ".join(packet.source for packet in found)
            raise ScenarioError(f"{label} comes to {to} from several ({sources}); add `from …`")
        if not again:
            self._packets.remove(found[0])
            self._arrived.append(found[0])
        return self._receive(found[0])

    def drain(self) -> Iterator[str]:
        while self._packets:
            packet = self._packets.pop(0)
            self._arrived.append(packet)
            yield from self._receive(packet)

    def _receive(self, packet: Packet) -> Iterator[str]:
        machine = self._machine(packet.to)
        before = {self._key(held) for held in machine.pending()}
        try:
            effects = machine.receive(packet.message)
        except CausalityError as error:
            yield f"{packet.to} refuses {packet.label}: {error}"
            return
        said = list(self._perform(packet.to, effects, saying_sends=effects))
        said += [self._holding(packet.to, h) for h in machine.pending() if self._key(h) not in before]
        yield from said or [f"{packet.to} gets {packet.label}, and nothing follows"]

    def _perform(self, name: str, effects, saying_sends) -> Iterator[str]:
        me = self._names.index(name)
        for effect in effects:
            if isinstance(effect, Deliver):
                key = (effect.sender, effect.clock)
                yield f"{name} delivers {self._labels[key]}" + self._overtaken(me, key)
                self._history.deliver(me, key)
                if self._ticking:
                    self._machines[name].tick()
                continue
            packet = Packet(self._label(effect.message), name, self._names[effect.to], effect.message)
            self._packets.append(packet)
            if effect in saying_sends:
                relayed = effect.message.to and effect.message.sender != me
                yield f"  {name} {'passes on' if relayed else 'sends'} {packet.label} to {packet.to}"

    # What is seen

    def show_log(self, name: str) -> Iterator[str]:
        machine = self._machine(name)
        if having(machine, TellsUnits) is None:
            raise ScenarioError(f"{self.protocol} tells no log")
        ((_, log),) = knowledge(machine)
        yield f"log of {name}: {log}"

    def show_held(self, name: str) -> Iterator[str]:
        held = self._machine(name).pending()
        yield from [self._holding(name, each) for each in held] or [f"{name} holds nothing"]

    def show_packets(self) -> Iterator[str]:
        shown = [f"{p.label} from {p.source} to {p.to}" for p in self._packets]
        yield from shown or ["nothing is under way"]

    def show_deliveries(self) -> Iterator[str]:
        for me, name in enumerate(self._names):
            order = [self._labels[key] for key in self._history.order.get(me, [])]
            yield f"{name} delivered {', '.join(order) or 'nothing'}"

    def _carried(self, destinations: list[int], sends) -> str:
        """Told apart by destination where they differ."""
        by_text: dict[str, list[str]] = {}
        for send in sends:
            by_text.setdefault(notation.carried(send.message), []).append(self._names[send.to])
        way = [self._names[send.to] for send in sends]
        # Routed, or put in order elsewhere: the packets go to others than the destinations.
        told = (
            ""
            if sorted(way) == sorted(self._names[d] for d in destinations)
            else f", by way of {', '.join(way)}"
        )
        if len(by_text) == 1:
            return f"{told}; carries {next(iter(by_text))}"
        return f"{told}; carries " + "; ".join(f"to {', '.join(to)}: {text}" for text, to in by_text.items())

    def _holding(self, name: str, held: Held) -> str:
        own = (held.message.sender, held.message.clock)
        lacking = ["its place in the order is known" for key in held.waits_for if key == own]
        lacking += [self._named(key) for key in held.waits_for if key != own]
        return f"{name} holds {self._labels[own]} until {' and '.join(lacking)}"

    def _overtaken(self, me: int, key: tuple[int, int]) -> str:
        overtaken = sorted(self._history.overtaken_by(me, key))
        return f", OVERTAKING {' and '.join(map(self._named, overtaken))}" if overtaken else ""

    def _named(self, key: tuple[int, int]) -> str:
        sender, clock = key
        if not clock:  # a protocol that counts something else than messages
            return f"a word of {self._names[sender]}"
        return f"{self._labels.get(key, 'something')} ({self._names[sender]},{clock})"

    def _label(self, message: ProtocolMessage) -> str:
        label = self._labels.get((message.sender, message.clock), "")
        return label if message.to else f"notice of {label}" if label else "notice"

    def _is(self, message: ProtocolMessage, key: tuple[int, int]) -> bool:
        return bool(message.to) and (message.sender, message.clock) == key

    def _key(self, held: Held) -> tuple[int, int]:
        return held.message.sender, held.message.clock

    def _machine(self, name: str) -> Machine:
        if not self._machines:
            raise ScenarioError("begin with `protocol …, processes …`")
        if name not in self._machines:
            raise ScenarioError(f"no process is called {name}; there are: {', '.join(self._names)}")
        return self._machines[name]

    def _indices(self, members: Iterable[str]) -> list[int]:
        for name in members:
            if name not in self._names:
                raise ScenarioError(f"no process is called {name}; there are: {', '.join(self._names)}")
        return [self._names.index(name) for name in members]
