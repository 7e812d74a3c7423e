"""Timestamps for applications: names instead of indices, bytes on messages, comparable timestamps.

    alice = Tracker("alice", ["alice", "bob"])
    bob = Tracker("bob", ["alice", "bob"])
    first = alice.relevant()
    bob.receive("alice", alice.send("bob"))      # the bytes travel with the application's message
    assert first.before(bob.relevant())

Assumes    every member lists the members in the same order and uses the same protocol and options.
Promises   what the protocol promises (see its file); comparisons are exact wherever vectors are known.
Leaves out comparison by scalars or dependency vectors, which raises LocalProtocolError. For dependency
           vectors, `reconstruct` the vectors of a whole computation first.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from ..core.clocks import Causality
from ..core.errors import LocalProtocolError, RemoteProtocolError
from ..core.roster import Roster
from . import reconstruction
from .piggyback import Timestamp
from .registry import DEFAULT, create
from .tracker import TrackerMachine


@dataclass(frozen=True, slots=True)
class Stamp:
    """The timestamp of one relevant event, with names. Equal stamps belong to the same event."""

    process: str
    seq: int
    vector: Mapping[str, int] | None = field(default=None, hash=False)
    predecessors: frozenset[tuple[str, int]] | None = None
    dependencies: Mapping[str, int] | None = field(default=None, hash=False)
    scalar: int | None = None
    null: bool = False

    def compare(self, other: "Stamp") -> Causality:
        """Whether this event is before, after, concurrent with or equal to another of its computation."""
        if (self.process, self.seq) == (other.process, other.seq):
            return Causality.EQUAL
        # e happened before f iff f's vector counts e: one look-up in each vector.
        if _counts(other).get(self.process, 0) >= self.seq:
            return Causality.BEFORE
        return Causality.AFTER if _counts(self).get(other.process, 0) >= other.seq else Causality.CONCURRENT

    def before(self, other: "Stamp") -> bool:
        return self.compare(other) is Causality.BEFORE

    def after(self, other: "Stamp") -> bool:
        return self.compare(other) is Causality.AFTER

    def concurrent(self, other: "Stamp") -> bool:
        return self.compare(other) is Causality.CONCURRENT

    def __str__(self) -> str:
        """Prints a stamp like `bob:2 {alice: 1, bob: 2} after alice:1`."""
        parts = [f"{self.process}:{self.seq}"]
        for counts, sign in ((self.vector, "{}"), (self.dependencies, "[]")):
            if counts is not None:
                parts.append(sign[0] + ", ".join(f"{name}: {n}" for name, n in counts.items()) + sign[1])
        if self.scalar is not None:
            parts.append(f"@{self.scalar}")
        if self.predecessors:
            parts.append("after " + ", ".join(f"{name}:{seq}" for name, seq in sorted(self.predecessors)))
        return " ".join([*parts, "(null)"] if self.null else parts)

    def to_json(self) -> dict[str, Any]:
        """A JSON object; it omits what the protocol does not tell."""
        before = self.predecessors
        told = {
            "vector": None if self.vector is None else dict(self.vector),
            "predecessors": None if before is None else [list(event) for event in sorted(before)],
            "dependencies": None if self.dependencies is None else dict(self.dependencies),
            "scalar": self.scalar,
            "null": self.null or None,
        }
        known = {name: value for name, value in told.items() if value is not None}
        return {"process": self.process, "seq": self.seq, **known}

    @classmethod
    def from_json(cls, value: Any) -> "Stamp":
        """The stamp for which `to_json` returned this value; RemoteProtocolError for any other value."""
        try:
            predecessors, scalar = value.get("predecessors"), value.get("scalar")
            return cls(
                _name(value["process"]),
                _number(value["seq"]),
                _read_counts(value.get("vector")),
                None if predecessors is None else frozenset((_name(p), _number(s)) for p, s in predecessors),
                _read_counts(value.get("dependencies")),
                None if scalar is None else _number(scalar),
                value.get("null", False) is True,
            )
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise RemoteProtocolError(f"not a timestamp: {error!r}") from error

    def to_bytes(self) -> bytes:
        """`to_json` as canonical UTF-8: equal stamps give equal bytes."""
        return json.dumps(self.to_json(), separators=(",", ":"), sort_keys=True, ensure_ascii=False).encode()

    @classmethod
    def from_bytes(cls, data: bytes) -> "Stamp":
        try:
            value = json.loads(data)
        except (ValueError, RecursionError) as error:
            raise RemoteProtocolError(f"not a timestamp: {error!r}") from error
        return cls.from_json(value)


class Tracker:
    """The tracker of one process. `protocol` and `options`: as for `happened.tracking.create`."""

    def __init__(self, me: str, members: Iterable[str], protocol: str = DEFAULT, **options: Any) -> None:
        self._roster = Roster(members)
        self._machine: TrackerMachine = create(protocol, self._roster.index(me), len(self._roster), **options)
        self._null_events: list[Stamp] = []

    def relevant(self) -> Stamp:
        """Record a relevant event of this process and return its stamp."""
        return named(self._machine.relevant(), self._roster)

    def send(self, to: str) -> bytes:
        """The bytes that a message to `to` must carry; the protocol may record a null event first."""
        return self.multicast([to])[to]

    def multicast(self, to: Iterable[str]) -> dict[str, bytes]:
        """The bytes for each destination of one message; all are told a null event that one needs."""
        names = list(to)
        carried = self._machine.on_multicast([self._roster.index(name) for name in names])
        for piggyback in carried:
            if piggyback.forced is not None:
                self._null_events.append(named(piggyback.forced, self._roster))
        return {name: piggyback.encode() for name, piggyback in zip(names, carried, strict=True)}

    def receive(self, sender: str, carried: bytes) -> None:
        """Take in the bytes that a delivered message of `sender` carried."""
        self._machine.on_receive(self._roster.index(sender), self._machine.decode(carried))

    def null_events(self) -> list[Stamp]:
        """The stamps of the null events that were recorded since the last call."""
        events, self._null_events = self._null_events, []
        return events

    def snapshot(self) -> bytes:
        """The tracker's state, with the null events not yet asked for: only this process can report them."""
        data = self._machine.snapshot()
        if not self._null_events:
            return data
        untold = [stamp.to_json() for stamp in self._null_events]
        return json.dumps({**json.loads(data), "untold": untold}, separators=(",", ":")).encode()

    def restore(self, data: bytes) -> None:
        self._machine.restore(data)
        self._null_events = [Stamp.from_json(stamp) for stamp in json.loads(data).get("untold", ())]


def named(timestamp: Timestamp, roster: Roster) -> Stamp:
    """A timestamp with names instead of indices; counts of zero are left out."""
    immediate = timestamp.predecessors()
    return Stamp(
        roster.name(timestamp.process),
        timestamp.seq,
        _named_counts(timestamp.vector(), roster),
        None if immediate is None else frozenset((roster.name(k), seq) for k, seq in immediate),
        _named_counts(timestamp.dependencies, roster),
        timestamp.scalar,
        timestamp.null,
    )


def reconstruct(stamps: Iterable[Stamp]) -> list[Stamp]:
    """The stamps of all events of a computation, with vectors computed from their dependencies."""
    stamps = list(stamps)
    roster = Roster(sorted({stamp.process for stamp in stamps}))

    def indexed(stamp: Stamp) -> Timestamp:
        told, counts = stamp.dependencies, None
        if told is not None:
            by_index = {roster.index(name): count for name, count in told.items()}
            counts = tuple(by_index.get(k, 0) for k in range(len(roster)))
        return Timestamp(roster.index(stamp.process), stamp.seq, dependencies=counts)

    found = reconstruction.vectors(map(indexed, stamps))
    return [
        replace(stamp, vector=_named_counts(found[roster.index(stamp.process), stamp.seq], roster))
        for stamp in stamps
    ]


def _named_counts(counts: tuple[int, ...] | None, roster: Roster) -> dict[str, int] | None:
    if counts is None:
        return None
    return {roster.name(k): count for k, count in enumerate(counts) if count}


def _counts(stamp: Stamp) -> Mapping[str, int]:
    if stamp.vector is None:
        raise LocalProtocolError(
            f"the timestamp of {stamp.process}:{stamp.seq} has no vector and cannot be compared; "
            "use a protocol that tells vectors, or reconstruct them from dependencies"
        )
    return stamp.vector


def _name(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{value!r} is not a name")
    return value


def _number(value: Any) -> int:
    if type(value) is not int or value < 1:
        raise ValueError(f"{value!r} is not a count of events")
    return value


def _read_counts(value: Any) -> dict[str, int] | None:
    return None if value is None else {_name(name): _number(count) for name, count in value.items()}
