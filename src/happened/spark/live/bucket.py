"""One bucket of a stream: a share of its computations, and their state between batches.

In     the rows of a batch that belong to the bucket; a store of numbered pages, which Spark keeps in RocksDB
Out    Answers of what can be said now; after `retire` of silence a computation is finished and forgotten
State  a head (an index of 13 bytes for each live computation, and generations) and pages of rows
Cost   of a batch: the pages of the computations that got rows, and the head

    page         the rows of some small computations, or one large computation as a LiveComputation
    index        hash of a computation → the page that has its rows, and whether its end says anything
    generation   consecutive pages that are due at the same time

A computation that gets rows moves to a new page, in the generation of now; its rows in the old page are
garbage, and a page that all have left is removed. When a generation is due, the computations whose page is in
it have been silent for `retire`: they are finished, and the pages are removed. A computation with nothing
held and nothing undelivered has no final results, so its pages are not even read.

Two computations with the same hash share an index entry and end together; their names tell them apart.
"""

import pickle
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ...causality.linearization import Ints
from ...causality.live import LiveComputation, Rules
from ...causality.live_union import HELD, KEPT, PROCESSES, QUESTIONS, advance
from ...causality.names import encode_names, hashes
from ...causality.questions import Answers
from ...core.errors import TraceFormatError
from ...trace.schema import QUARANTINE
from ..tasks import pack_table, unpack_table

PAGE_ROWS = 256
"""The approximate number of rows in a page of small computations, which is read and written as one."""

LARGE = 2048
"""A computation with more events is computed incrementally: recomputing it in each batch would cost more."""

STEPS = 16
"""Generations in a period of `retire`: the resolution at which silence is measured."""

SMALL_PAGE, LARGE_PAGE = b"S", b"L"


class Store(Protocol):
    """The store that Spark keeps for a bucket."""

    def read(self, page: int) -> bytes: ...
    def write(self, page: int, data: bytes) -> None: ...
    def remove(self, page: int) -> None: ...


class Generation(NamedTuple):
    """Pages first … end - 1, which are due together."""

    due: int
    first: int
    end: int
    size: int  # bytes


@dataclass
class BucketHead:
    """The state of a bucket besides its pages. Hashes are in increasing order."""

    batches: int = 0
    pages: int = 0
    generations: list[Generation] = field(default_factory=list)
    hashes: Ints = field(default_factory=lambda: np.empty(0, np.uint64))
    page: Ints = field(default_factory=lambda: np.empty(0, np.int32))
    is_open: Ints = field(default_factory=lambda: np.empty(0, bool))
    removed: set[int] = field(default_factory=set)  # pages of generations that are not due yet

    def pack(self) -> bytes:
        return pickle.dumps(self, pickle.HIGHEST_PROTOCOL)

    @property
    def due(self) -> int | None:
        """When the first generation is due."""
        return self.generations[0].due if self.generations else None

    def find(self, wanted: Ints) -> Ints:
        """The place of each hash in the index, -1 for one that is not there."""
        if not self.hashes.size:
            return np.full(wanted.size, -1, np.int64)
        at = np.minimum(np.searchsorted(self.hashes, wanted), self.hashes.size - 1)
        return np.where(self.hashes[at] == wanted, at, -1)

    def put(self, moved: Ints, page: Ints, is_open: Ints) -> None:
        """Record the pages in which these computations are now."""
        at = self.find(moved)
        known = at >= 0
        self.page[at[known]], self.is_open[at[known]] = page[known], is_open[known]
        new = np.flatnonzero(~known)
        new = new[np.argsort(moved[new])]
        places = np.searchsorted(self.hashes, moved[new])
        self.hashes = np.insert(self.hashes, places, moved[new])
        self.page = np.insert(self.page, places, page[new].astype(np.int32))
        self.is_open = np.insert(self.is_open, places, is_open[new])

    def keep(self, kept: Ints) -> None:
        self.hashes, self.page, self.is_open = self.hashes[kept], self.page[kept], self.is_open[kept]


@dataclass
class GivenUp:
    """Replaces a large computation that has no more results."""

    name: str


class Bucket:
    """rules.retire is in the unit of `now`."""

    def __init__(
        self, store: Store, head: bytes | None, rules: Rules, questions: Collection[str] = QUESTIONS
    ) -> None:
        self._store, self._rules, self._questions = store, rules, questions
        self.head: BucketHead = BucketHead() if head is None else pickle.loads(head)
        self._size = 0 if head is None else len(head)
        self._sizes: dict[int, int] = {}  # pages that have been read

    def arrive(self, rows: pa.Table, now: int) -> Answers:
        """Take rows of EVENTS, and return the results so far."""
        named = hashes(encode_names(rows["computation"])[1])
        answers, kept, larges = Answers(), [KEPT.empty_table()], dict[str, LiveComputation | GivenUp]()
        at = self.head.find(named)
        for found in self._read(at[at >= 0]):
            if isinstance(found, pa.Table):
                kept.append(found)
            else:
                larges[found.name] = found
        old = pa.concat_tables(kept)
        before = self.head.hashes.size
        self._grow(old, rows, now, larges)
        is_large = pc.is_in(rows["computation"], value_set=pa.array(larges, pa.string()))
        moved: list[tuple[Ints, bytes, Ints]] = []
        for name, live in larges.items():
            part = rows.filter(pc.equal(rows["computation"], name))
            live = self._step(live, part, now, answers)
            data = LARGE_PAGE + pickle.dumps(live, pickle.HIGHEST_PROTOCOL)
            moved.append((hashes([name]), data, np.ones(1, bool)))
        if larges:
            rows = rows.filter(pc.invert(is_large))
            old = old.filter(pc.invert(pc.is_in(old["computation"], value_set=pa.array(larges, pa.string()))))
        if rows.num_rows:
            done = advance(old, rows, self.head.batches, self._rules, questions=self._questions)
            answers.join(done.answers)
            moved += _paged(done.kept, done.open)
        self._write(moved, now, answers)
        self._remove_left(answers)
        self.head.batches += 1
        answers.totals["live"] += self.head.hashes.size - before
        return answers

    def knows(self, computations: pa.ChunkedArray) -> pa.Array:
        """Whether the bucket has state for each of these computations."""
        codes, names = encode_names(computations)
        return pa.array((self.head.find(hashes(names)) >= 0)[codes])

    def expire(self, now: int) -> Answers:
        """Finish the computations that have been silent long enough."""
        answers = Answers()
        while self.head.generations and self.head.generations[0].due <= now:
            self._finish(self.head.generations.pop(0), now, answers)
        return answers

    def end(self, now: int) -> Answers:
        """The input has ended: finish everything."""
        due = max((generation.due for generation in self.head.generations), default=now)
        return self.expire(max(due, now))

    def close(self, answers: Answers) -> bytes | None:
        """The head to keep, None if there is nothing; the change of the state's size goes to the answers."""
        head = self.head.pack() if self.head.generations else None
        answers.totals["state_bytes"] += (0 if head is None else len(head)) - self._size
        return head

    def _read(self, places: Ints) -> "Iterator[pa.Table | LiveComputation | GivenUp]":
        """The state of the computations at these places of the index: tables of small ones, and each large
        one. Rows in pages that a computation has left do not count."""
        pages = self.head.page[places]
        for page in np.unique(pages).tolist():
            data = self._store.read(page)
            self._sizes[page] = len(data)
            if data[:1] == LARGE_PAGE:
                yield pickle.loads(data[1:])
                continue
            table = unpack_table(data[1:])
            codes, names = encode_names(table["computation"])
            wanted = np.isin(hashes(names), self.head.hashes[places[pages == page]])
            yield table if wanted.all() else table.filter(pa.array(wanted[codes]))

    def _grow(
        self, old: pa.Table, rows: pa.Table, now: int, larges: "dict[str, LiveComputation | GivenUp]"
    ) -> None:
        """Convert the computations that become too large with these rows into large ones."""
        if old.num_rows + rows.num_rows <= LARGE:
            return
        both = pa.chunked_array([*old["computation"].chunks, *rows["computation"].chunks])
        counts = pc.value_counts(both)
        grown = counts.field("values").filter(pc.greater(counts.field("counts"), LARGE))
        for name in grown.to_pylist():
            if name not in larges:
                kept = old.filter(pc.equal(old["computation"], name))
                larges[name] = _live(name, kept, self._rules, now)

    def _step(
        self, live: LiveComputation | GivenUp, part: pa.Table, now: int, answers: Answers, last: bool = False
    ) -> LiveComputation | GivenUp:
        """Give rows to a large computation, or end it."""
        if isinstance(live, GivenUp):
            answers.totals["quarantined"] += part.num_rows
            if part.num_rows:
                _quarantine(answers, live.name, f"{part.num_rows:,} more rows of it came, and are left out")
            return live
        held, events = live.held, live.events
        try:
            found = live.finish(now) if last else live.step(part, now)
            found.totals["events"] += sum(table.num_rows for table in found.tables["stamps"])
            answers.join(found)
        except TraceFormatError as error:
            answers.totals["quarantined"] += part.num_rows + held
            _quarantine(answers, live.name, f"{error}; events told before are right, later ones are left out")
            answers.totals["held"] -= held
            return GivenUp(live.name)
        answers.totals["held"] += live.held - held
        answers.totals["computations"] += events == 0 < live.events
        new = range(live.listed, len(live.names))
        live.listed = len(live.names)
        told = [{"computation": live.name, "process": live.names[p], "p": p} for p in new]
        answers.add("processes", pa.Table.from_pylist(told, schema=PROCESSES))
        return live

    def _write(self, moved: Sequence[tuple[Ints, bytes, Ints]], now: int, answers: Answers) -> None:
        """Write pages, put their computations into the index, and the pages into the current generation."""
        if not moved:
            return
        head, first = self.head, self.head.pages
        step = max(self._rules.retire // STEPS, 1)
        due = -(-(now + self._rules.retire) // step) * step
        for _, data, _ in moved:
            self._store.write(head.pages, data)
            head.pages += 1
        pages = [np.full(named.size, first + k) for k, (named, _, _) in enumerate(moved)]
        named, flags = (np.concatenate([each[k] for each in moved]) for k in (0, 2))
        named, at = np.unique(named, return_index=True)
        head.put(named, np.concatenate(pages)[at], flags[at])
        size = sum(len(data) for _, data, _ in moved)
        answers.totals["state_bytes"] += size
        if head.generations and head.generations[-1].due >= due:
            newest = head.generations.pop()
            due, first, size = newest.due, newest.first, size + newest.size
        head.generations.append(Generation(due, first, head.pages, size))

    def _remove_left(self, answers: Answers) -> None:
        """Remove the pages that were read and that all their computations have left."""
        head = self.head
        for page in set(self._sizes) - set(head.page[np.isin(head.page, [*self._sizes])].tolist()):
            self._store.remove(page)
            head.removed.add(page)
            size = self._sizes.pop(page)
            answers.totals["state_bytes"] -= size
            k = next(k for k, each in enumerate(head.generations) if each.first <= page < each.end)
            head.generations[k] = head.generations[k]._replace(size=head.generations[k].size - size)

    def _finish(self, generation: Generation, now: int, answers: Answers) -> None:
        head = self.head
        here = (head.page >= generation.first) & (head.page < generation.end)
        kept = [KEPT.empty_table()]
        for found in self._read(np.flatnonzero(here & head.is_open)):
            if isinstance(found, pa.Table):
                kept.append(found)
            else:
                self._step(found, KEPT.empty_table(), now, answers, last=True)
        rows = pa.concat_tables(kept)
        if rows.num_rows:
            nothing = rows.slice(0, 0)
            done = advance(rows, nothing, head.batches, self._rules, last=True, questions=self._questions)
            answers.join(done.answers)
            head.batches += 1
        pages = {*range(generation.first, generation.end)}
        for page in sorted(pages - head.removed):
            self._store.remove(page)
        head.removed -= pages
        answers.totals["live"] -= int(here.sum())
        answers.totals["state_bytes"] -= generation.size
        head.keep(~here)


def _live(name: str, kept: pa.Table, rules: Rules, now: int) -> LiveComputation:
    """The computation that gave the results for these rows."""
    known: dict[str, int] = {}
    for row in kept.filter(pc.not_equal(kept["told"], HELD)).to_pylist():
        for process in (row["process"], *(row["to"] or ())):
            known[process] = min(row["told"], known.get(process, row["told"]))
    live = LiveComputation.of(name, rules, sorted(known, key=lambda process: (known[process], process)))
    live.listed = len(known)
    live.step(kept, now)
    return live


def _paged(kept: pa.Table, is_open: pa.Array) -> Iterator[tuple[Ints, bytes, Ints]]:
    """Pages of about PAGE_ROWS rows, cut between computations: hashes, bytes, and which are open."""
    codes, names = encode_names(kept["computation"])
    begins = np.flatnonzero(np.diff(codes, prepend=-1))  # rows are by computation
    named, flags = hashes(names), pc.is_in(names, value_set=is_open).to_numpy(zero_copy_only=False)
    cuts = [0]
    for k, begin in enumerate(begins.tolist()):
        if begin - begins[cuts[-1]] >= PAGE_ROWS:
            cuts.append(k)
    for first, end in zip(cuts, [*cuts[1:], begins.size], strict=True):
        start, stop = begins[first], begins[end] if end < begins.size else kept.num_rows
        data = SMALL_PAGE + pack_table(kept.slice(start, stop - start))
        yield named[first:end], data, flags[first:end]


def _quarantine(answers: Answers, computation: str, reason: str) -> None:
    row = {"computation": computation, "reason": reason}
    answers.add("quarantine", pa.Table.from_pylist([row], schema=QUARANTINE))
