"""Judges what the processes wrote down, without a word from the runtime.

A message *m* comes before *m'* if one process asked for both in that order, or got *m* before it asked for
*m'*, or by any chain of these: plain reachability, as sets of messages (an `int` each). Sets grow along the
logs, each of which waits at a `got` until the log that has the `ask` has come as far.

| fault | when |
|---|---|
| lost | confirmed, or handed over at one destination, and at another one never handed over and acknowledged |
| repeated | handed over again after its acknowledgement had returned, or twice in one life |
| misordered | handed over before a message to the same process that comes before it |
| disagreed | total order: the first deliveries of all processes fit into no common order |
| invented | never asked for, refused, altered, under another's name, or sent from an old copy of a journal |
| misaddressed | handed over to somebody it was not addressed to |
| torn | an acknowledgement and the multicast in one commit with it, of which one happened |

A life on an old copy of a journal (`void`) is the operator's doing: what it gets, confirms or acknowledges
proves nothing and causes nothing. What it asks for must reach nobody.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

Record = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Fault:
    kind: str
    text: str

    def __str__(self) -> str:
        return f"{self.kind}: {self.text}"


def read_log(path: Path) -> list[Record]:
    """The lines of a log; one that a kill has cut off was not written."""
    records = []
    for line in path.read_bytes().split(b"\n"):
        try:
            records.append(json.loads(line))
        except ValueError:
            continue
    return records


@dataclass(slots=True)
class Asked:
    """A message as its sender wrote it down, and what became of it."""

    key: str
    sender: str
    bit: int
    to: frozenset[str]
    digest: str
    is_ordered: bool
    with_ack: str | None
    is_void: bool
    is_confirmed: bool = False
    is_refused: bool = False
    past: int = 0
    """All that comes before it, as bits."""


@dataclass(slots=True)
class Place:
    """What one process did with what it got."""

    handed_over: list[tuple[int, str]] = field(default_factory=list)  # (life, key), void lives left out
    first: dict[str, int] = field(default_factory=dict)  # key -> place in handed_over
    acking: dict[str, int] = field(default_factory=dict)
    """The life in which its acknowledgement began, of each message that did not come again after that."""


@dataclass(slots=True)
class Judgement:
    faults: list[Fault]
    asked: int
    confirmed: int
    handed_over: int
    handed_over_again: int
    pairs: int  # of messages to one process of which one comes before the other


def judge(logs: Mapping[str, Sequence[Record]], *, causal: bool = True, total: bool = False) -> Judgement:
    court = _Court(logs)
    court.find_invented()
    court.find_repeated()
    court.find_pasts()
    if causal:
        court.find_misordered()
    if total:
        court.find_disagreement()
    court.find_lost()
    court.find_torn()
    genuine = [asked for asked in court.asked.values() if not asked.is_void]
    handed_over = sum(len(place.first) for place in court.places.values())
    return Judgement(
        faults=court.faults,
        asked=len(genuine),
        confirmed=sum(asked.is_confirmed for asked in genuine),
        handed_over=handed_over,
        handed_over_again=sum(len(place.handed_over) for place in court.places.values()) - handed_over,
        pairs=court.pairs,
    )


class _Court:
    def __init__(self, logs: Mapping[str, Sequence[Record]]) -> None:
        self.logs = {name: list(with_lives(records)) for name, records in logs.items()}
        self.faults: list[Fault] = []
        self.asked: dict[str, Asked] = {}
        self.places = {name: Place() for name in logs}
        self.pairs = 0
        for name, records in self.logs.items():
            for _, is_void, record in records:
                if record["what"] == "ask":
                    self._enter(name, is_void, record)
        for name, records in self.logs.items():
            for life, is_void, record in records:
                self._follow(name, life, is_void, record)
        self.by_bit = {asked.bit: asked for asked in self.asked.values()}

    def _enter(self, name: str, is_void: bool, record: Record) -> None:
        self.asked[record["key"]] = Asked(
            key=record["key"],
            sender=name,
            bit=1 << len(self.asked),
            to=frozenset(record["to"]),
            digest=record["digest"],
            is_ordered=record["ordered"],
            with_ack=record.get("with_ack"),
            is_void=is_void,
        )

    def _follow(self, name: str, life: int, is_void: bool, record: Record) -> None:
        place, key = self.places[name], record.get("key", "")
        match record["what"]:
            case "refused":
                self.asked[key].is_refused = True
            case _ if is_void:
                pass
            case "sent":
                self.asked[key].is_confirmed = True
            case "got":
                place.acking.pop(key, None)
                place.first.setdefault(key, len(place.handed_over))
                place.handed_over.append((life, key))
            case "acking":
                place.acking[key] = life

    def _fault(self, kind: str, text: str) -> None:
        self.faults.append(Fault(kind, text))

    def find_invented(self) -> None:
        for name, records in self.logs.items():
            for life, _, record in records:
                if record["what"] != "got":
                    continue
                key, asked = record["key"], self.asked.get(record["key"])
                where = f"{key} at {name} in life {life}"
                if asked is None:
                    self._fault("invented", f"{where}: nobody asked for it")
                elif asked.is_refused:
                    self._fault("invented", f"{where}: it was refused")
                elif asked.is_void:
                    self._fault("invented", f"{where}: it was sent from an old copy of a journal")
                elif record["sender"] != asked.sender:
                    self._fault("invented", f"{where}: it came as a message of {record['sender']}")
                elif record["digest"] != asked.digest:
                    self._fault("invented", f"{where}: its payload was altered")
                elif name not in asked.to:
                    self._fault("misaddressed", f"{where}: it is for {sorted(asked.to)}")

    def find_repeated(self) -> None:
        for name, records in self.logs.items():
            acked: set[str] = set()
            handed_over: set[tuple[int, str]] = set()
            for life, is_void, record in records:
                if is_void:
                    continue
                if record["what"] == "acked":
                    acked.add(record["key"])
                elif record["what"] == "got":
                    key = record["key"]
                    if key in acked:
                        self._fault("repeated", f"{key} at {name} in life {life}, after it was acknowledged")
                    elif (life, key) in handed_over:
                        self._fault("repeated", f"{key} at {name}, twice in life {life}")
                    handed_over.add((life, key))

    def find_pasts(self) -> None:
        """Give each message the set of those that come before it."""
        walks = {name: self._walk(name) for name in self.logs}
        at = {name: next(walk, None) for name, walk in walks.items()}
        passed: set[str] = set()  # keys whose ask a walk has passed
        moved = True
        while moved:
            moved = False
            for name, walk in walks.items():
                while (step := at[name]) is not None and (
                    step[0] == "ask" or self._has_past(step[1], passed)
                ):
                    moved = True
                    if step[0] == "ask":
                        passed.add(step[1])
                    at[name] = next(walk, None)
        if stuck := sorted({step[1] for step in at.values() if step}):
            self._fault("invented", f"{', '.join(stuck)}: handed over before anybody can have asked")

    def _has_past(self, key: str, passed: set[str]) -> bool:
        asked = self.asked.get(key)
        return asked is None or asked.is_void or key in passed

    def _walk(self, name: str) -> Iterator[tuple[str, str]]:
        """Stops at each ask, when that message has its past, and at each got, before its past joins in."""
        past = 0
        for _, is_void, record in self.logs[name]:
            if is_void or record["what"] not in ("ask", "got"):
                continue
            asked = self.asked.get(record["key"])
            if record["what"] == "ask" and asked is not None and asked.is_ordered:
                asked.past = past
                past |= asked.bit
            yield record["what"], record["key"]
            if record["what"] == "got" and asked is not None and asked.is_ordered and not asked.is_void:
                past |= asked.past | asked.bit

    def find_misordered(self) -> None:
        for name, place in self.places.items():
            here = self._bits(key for key in place.first if name in self._to(key))
            this_life, now, before = 0, 0, 0
            lives: dict[str, int] = {}
            for life, key in place.handed_over:
                if life != this_life:
                    # What was handed over and never began to be acknowledged must come again, and first.
                    this_life, now = life, 0
                    before = self._bits(k for k, began in place.acking.items() if began < life and k in lives)
                lives[key] = life
                asked = self.asked.get(key)
                if asked is None or not asked.is_ordered:
                    continue
                needed = asked.past & here
                self.pairs += needed.bit_count()
                for early in self._messages(needed & ~(now | before)):
                    self._fault("misordered", f"{key} at {name} in life {life}, before {early.key}")
                now |= asked.bit

    def _to(self, key: str) -> frozenset[str]:
        asked = self.asked.get(key)
        return asked.to if asked else frozenset()

    def _bits(self, keys: Iterable[str]) -> int:
        bits = 0
        for key in keys:
            if key in self.asked:
                bits |= self.asked[key].bit
        return bits

    def _messages(self, bits: int) -> Iterator[Asked]:
        while bits:
            yield self.by_bit[bits & -bits]
            bits &= bits - 1

    def find_disagreement(self) -> None:
        """Take away, again and again, a message that is the next one wherever it is still to come."""
        queues = {
            name: [key for key in place.first if key in self.asked and self.asked[key].is_ordered]
            for name, place in self.places.items()
        }
        places = {
            key: [name for name, place in self.places.items() if key in place.first]
            for queue in queues.values()
            for key in queue
        }
        heads = dict.fromkeys(queues, 0)
        while left := {
            name: queue[heads[name]] for name, queue in queues.items() if heads[name] < len(queue)
        }:
            free = next(
                (key for key in left.values() if all(left.get(name) == key for name in places[key])), None
            )
            if free is None:
                self._fault("disagreed", ", ".join(f"{name} has {key} next" for name, key in left.items()))
                return
            for name in places[free]:
                heads[name] += 1

    def find_lost(self) -> None:
        reached = {key for place in self.places.values() for key in place.first}
        for key, asked in self.asked.items():
            if asked.is_void or not (asked.is_confirmed or key in reached):
                continue
            for name in sorted(asked.to):
                if key not in self.places[name].first:
                    how = "confirmed" if asked.is_confirmed else "delivered elsewhere"
                    self._fault("lost", f"{key} was {how}, and never came to {name}")
                elif key not in self.places[name].acking:
                    self._fault("lost", f"{key} came to {name}, was not acknowledged, and did not come again")

    def find_torn(self) -> None:
        """A message that is acknowledged together with a multicast comes again if that does not go out, and
        only then."""
        reached = {key for place in self.places.values() for key in place.first}
        for asked in self.asked.values():
            if asked.with_ack is None or asked.is_void:
                continue
            went_out = asked.is_confirmed or asked.key in reached
            if went_out and self._came_after_ask(asked):
                self._fault(
                    "torn", f"{asked.key} went out, and {asked.with_ack}, acknowledged with it, came again"
                )
            elif not went_out and not self._came_after_ask(asked):
                self._fault(
                    "torn", f"{asked.with_ack} was acknowledged, and {asked.key} did not go out with that"
                )

    def _came_after_ask(self, asked: Asked) -> bool:
        is_after = False
        for _, is_void, record in self.logs[asked.sender]:
            if is_void:
                continue
            if record["what"] == "ask" and record["key"] == asked.key:
                is_after = True
            elif is_after and record["what"] == "got" and record["key"] == asked.with_ack:
                return True
        return False


def with_lives(records: Iterable[Record]) -> Iterator[tuple[int, bool, Record]]:
    """Each line with the number of its life, and whether that is void."""
    life, is_void = 0, False
    for record in records:
        if record["what"] == "life":
            life, is_void = record["number"], record["void"]
        yield life, is_void, record
