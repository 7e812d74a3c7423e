"""Logs that carry a vector clock on every event: process order from its own component.

A clock counts, per process, the events in an event's past, its own included. If a log names no messages, new
clock entries become causes: if the component of process g grew to v since the event's predecessor, all events
of g numbered up to v happened before. The newest such event in the log becomes the cause, so that a gap in
the log may hide a cause but never invents one; an event that two records claim is skipped.

A clock is impossible if a component shrinks, an identity is used twice or a run begins again. Such events are
numbered in file order, keep their clock for verification, and are reported.
"""

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import pairwise

from .cycles import break_circles
from .draft import Assembly, Draft, QuarantinedRecord, by_computation


def clock_problem(process: str, clock: object) -> str | None:
    """Why this cannot be the clock of an event of `process`; None if it can be."""
    if not isinstance(clock, dict):
        return "is not an object of process names and counts"
    for name, count in clock.items():
        if type(count) is not int or not 0 <= count < 2**63:
            return f"counts {count!r} events of {name}; a count is a whole number"
    if clock.get(process, 0) < 1:
        return f"has no count of {process}'s own events, so that this one has no place in its process"
    return None


def assemble_clocked(drafts: Iterable[Draft], *, causes_from_clocks: bool) -> Assembly:
    """Number the events of every process and, on request, derive their causes from the clocks."""
    result = Assembly()
    for group in by_computation(drafts).values():
        run = _ClockedComputation(group)
        result.quarantined += run.problems()
        causes = run.causes(result) if causes_from_clocks else {}
        kept = [i for i in range(len(group)) if i in run.seq]
        rows = [group[i].row(group[i].process, run.seq[i], causes.get(i)) for i in kept]
        break_circles(rows, [group[i] for i in kept], result)
        result.rows += rows
    return result


class _ClockedComputation:
    """One computation: its events by process, ordered and numbered. Events are indices of drafts."""

    def __init__(self, drafts: list[Draft]) -> None:
        self.drafts = drafts
        self.clocks = [draft.clock or {} for draft in drafts]
        self.repeated: list[tuple[int, int]] = []  # (first, again): the same record twice
        self.in_file_order: dict[str, list[int]] = {}
        for i, draft in enumerate(drafts):
            self.in_file_order.setdefault(draft.process, []).append(i)
        for process, events in self.in_file_order.items():
            if len(self._beginnings(events)) == 1:
                self.in_file_order[process] = self._each_once(events)
        self.chains = {
            process: sorted(events, key=self.own)
            if len(set(map(self.own, events))) == len(events)
            else events
            for process, events in self.in_file_order.items()
        }
        self.seq = {i: seq for chain in self.chains.values() for seq, i in enumerate(chain, start=1)}

    def _beginnings(self, events: list[int]) -> list[int]:
        """The positions at which a process starts counting; several if it counts 1, 2, … again."""
        starts = [i for k, i in enumerate(events) if k == 0 or self.own(i) <= self.own(events[k - 1])]
        return starts if all(self.own(i) == 1 for i in starts) else starts[:1]

    def _each_once(self, events: list[int]) -> list[int]:
        seen: dict[int, int] = {}
        kept = []
        for i in events:
            first = seen.setdefault(self.own(i), i)
            if first != i and _content(self.drafts[i]) == _content(self.drafts[first]):
                self.repeated.append((first, i))
            else:
                kept.append(i)
        return kept

    def own(self, i: int) -> int:
        return self.clocks[i][self.drafts[i].process]

    def causes(self, result: Assembly) -> dict[int, list[tuple[str, int]]]:
        """The newest logged event of each process that an event has learnt of, by process and seq."""
        logged = {}
        for process, chain in self.chains.items():
            claims = Counter(map(self.own, chain))
            logged[process] = sorted((self.own(i), self.seq[i]) for i in chain if claims[self.own(i)] == 1)
        absent: dict[tuple[str, str], list[int]] = {}
        causes = {}
        for process, chain in self.chains.items():
            known: dict[str, int] = {}
            for i in chain:
                found = []
                for g, count in self.clocks[i].items():
                    if g == process or count <= known.get(g, 0):
                        continue
                    events = logged.get(g, [])
                    at = bisect_right(events, count, key=lambda event: event[0])
                    if at > 0:
                        found.append((g, events[at - 1][1]))
                    if at == 0 or events[at - 1][0] != count:
                        absent.setdefault((process, g), []).append(i)
                causes[i] = found
                known |= {g: count for g, count in self.clocks[i].items() if count > known.get(g, 0)}
        result.quarantined += (self._absent(g, events) for (_, g), events in absent.items())
        return causes

    def _absent(self, g: str, events: list[int]) -> QuarantinedRecord:
        draft = self.drafts[events[0]]
        again = f" (and {len(events) - 1} more of {draft.process}'s events)" if len(events) > 1 else ""
        reason = (
            f"knows of event {self.clocks[events[0]][g]} of {g}, which is not in the log or not unique"
            f"{again}; the newest one before it is taken as the cause"
        )
        return draft.quarantined("clock", reason)

    def problems(self) -> Iterator[QuarantinedRecord]:
        for first, again in self.repeated:
            reason = f"repeats line {self.drafts[first].line}; counted once"
            yield self.drafts[again].quarantined(None, reason, imported=False)
        for process, events in self.in_file_order.items():
            if len(set(map(self.own, events))) < len(events):
                yield self._claimed_twice(process, events)
            else:
                yield from self._gaps(process)
            yield from self._regressions(process)

    def _claimed_twice(self, process: str, events: list[int]) -> QuarantinedRecord:
        beginnings = self._beginnings(events)
        if len(beginnings) > 1:
            return self.drafts[beginnings[1]].quarantined(
                "clock",
                f"{process} begins again at 1 (it has {len(beginnings)} beginnings): several runs in one "
                "file. Tell them apart with --delimiter 'REGEX' matching a line between them",
            )
        seen: dict[int, int] = {}
        again = [i for i in events if seen.setdefault(self.own(i), i) != i]
        own = self.own(again[0])
        return self.drafts[again[0]].quarantined(
            "clock",
            f"event {own} of {process} is also on line {self.drafts[seen[own]].line}, with other content "
            f"({len(again)} in all): two processes share the identity {process}. Give each a name of its "
            "own; imported in file order",
        )

    def _gaps(self, process: str) -> Iterator[QuarantinedRecord]:
        chain = self.chains[process]
        if self.own(chain[0]) != 1:
            reason = f"the log begins with event {self.own(chain[0])} of {process}; numbered from 1 here"
            yield self.drafts[chain[0]].quarantined("clock", reason)
        gaps = [k for k in range(1, len(chain)) if self.own(chain[k]) != self.own(chain[k - 1]) + 1]
        if gaps:
            at = gaps[0]
            reason = (
                f"event {self.own(chain[at])} of {process} follows {self.own(chain[at - 1])}: some are "
                f"missing ({len(gaps)} gaps); numbered without gaps here"
            )
            yield self.drafts[chain[at]].quarantined("clock", reason)

    def _regressions(self, process: str) -> Iterator[QuarantinedRecord]:
        chain = self.chains[process]
        found = []
        for before, i in pairwise(chain):
            earlier, later = self.clocks[before], self.clocks[i]
            shrunk = [g for g, count in earlier.items() if g != process and later.get(g, 0) < count]
            found += [(i, shrunk[0], earlier[shrunk[0]], later.get(shrunk[0], 0))] if shrunk else []
        if found:
            i, g, before, after = found[0]
            reason = (
                f"the clock of {process} runs backwards: it knew {before} events of {g}, then {after} "
                f"({len(found)} times)"
            )
            yield self.drafts[i].quarantined("clock", reason)


def counts(drafts: Iterable[Draft]) -> dict[str, int]:
    """The number of processes whose events are not in the order of their own clock components in the file."""
    newest: dict[tuple[str, str], int] = {}
    astray = set()
    for draft in drafts:
        key = (draft.computation, draft.process)
        own = (draft.clock or {}).get(draft.process, 0)
        if own < newest.get(key, 0):
            astray.add(key)
        newest[key] = max(own, newest.get(key, 0))
    return {"hosts_out_of_file_order": len(astray)}


def _content(draft: Draft) -> tuple[object, ...]:
    return draft.clock, draft.label, draft.attributes
