"""The player of scenarios about timestamps: trackers, and messages that arrive when the scenario says so."""

from collections.abc import Iterator

from happened.core.roster import Roster
from happened.tracking import Piggybacked, Stamp, Timestamp, TrackerMachine, create, protocols
from happened.tracking.named import named
from scenarios.language import ScenarioError, names

WORD = r"[\w'-]+"


class Trackers:
    COMMANDS = (
        (r"tracker (?P<protocol>\S+), processes (?P<members>.+)", "start"),
        (rf"(?P<name>{WORD}) has a relevant event", "relevant"),
        (rf"(?P<name>{WORD}) sends (?P<label>{WORD}) to (?P<to>{WORD})", "send"),
        (rf"(?P<label>{WORD}) arrives at (?P<to>{WORD})", "arrive"),
        (rf"compare (?P<one>{WORD}:\d+) with (?P<other>{WORD}:\d+)", "compare"),
    )

    def __init__(self) -> None:
        self.protocol = ""
        self._roster = Roster()
        self._machines: dict[str, TrackerMachine] = {}
        self._stamps: dict[str, Stamp] = {}
        self._carried: dict[tuple[str, str], tuple[str, Piggybacked]] = {}  # by label and destination

    def start(self, protocol: str, members: str) -> Iterator[str]:
        if protocol.partition(":")[0] not in protocols():
            raise ScenarioError(f"no tracking protocol is called {protocol!r}")
        self.protocol = protocol
        self._roster = Roster(names(members))
        n = len(self._roster)
        self._machines = {name: create(protocol, me, n) for me, name in enumerate(self._roster)}
        return iter(())

    def relevant(self, name: str) -> Iterator[str]:
        yield self._seen(self._machine(name).relevant())

    def send(self, name: str, label: str, to: str) -> Iterator[str]:
        if (label, to) in self._carried:
            raise ScenarioError(f"{label} was sent before; give this message a name of its own")
        carried = self._machine(name).on_send(self._machine(to).me)
        if carried.forced is not None:
            yield self._seen(carried.forced)
        self._carried[label, to] = (name, carried)
        count = carried.entries
        yield f"{name} sends {label} to {to}; carries {count} {'entry' if count == 1 else 'entries'}"

    def arrive(self, label: str, to: str) -> Iterator[str]:
        if (label, to) not in self._carried:
            raise ScenarioError(f"no {label} was sent to {to}")
        source, carried = self._carried[label, to]
        machine = self._machine(to)
        machine.on_receive(self._machine(source).me, machine.decode(carried.encode()))
        return iter(())

    def compare(self, one: str, other: str) -> Iterator[str]:
        for name in (one, other):
            if name not in self._stamps:
                raise ScenarioError(f"no event is called {name}; there are: {', '.join(self._stamps)}")
        yield f"{one} and {other}: {self._stamps[one].compare(self._stamps[other]).value}"

    def _seen(self, timestamp: Timestamp) -> str:
        stamp = named(timestamp, self._roster)
        self._stamps[f"{stamp.process}:{stamp.seq}"] = stamp
        return str(stamp)

    def _machine(self, name: str) -> TrackerMachine:
        if not self._machines:
            raise ScenarioError("begin with `tracker …, processes …`")
        if name not in self._machines:
            raise ScenarioError(f"no process is called {name}; there are: {', '.join(self._machines)}")
        return self._machines[name]
