"""The files of edges that tasks read; processes are numbered for the whole computation, not per file."""

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np

from ...causality.linearization import Ints
from ...trace.store import AnyPath
from ..storage import read_arrays
from .matching import EDGES, UNNAMED, UNNAMED_SEQ, unpack_names


class EdgeFile:
    """names, counts   of the computation's processes, and of their events"""

    def __init__(self, path: AnyPath, names: Sequence[str], counts: Ints) -> None:
        self._arrays = read_arrays(path)
        index = {name: p for p, name in enumerate(names)}
        self._local = unpack_names(self._arrays["names"])
        self._known = np.array([index.get(name, -1) for name in self._local], np.int64)
        self._counts = counts
        self._edges = {name: self._arrays[name] for name in EDGES}
        self._source = self._known[self._edges["source"]]
        self._target = self._known[self._edges["target"]]
        length = np.where(self._source >= 0, counts[self._source], 0) if len(counts) else self._source
        seq = self._edges["source_seq"]
        self._real = (seq >= 1) & (seq <= length)
        self._whole = self._real & (self._edges["target_seq"] > 0)

    def ends(self) -> tuple[Ints, Ints, Ints, Ints]:
        """(source, its seq, target, its seq) of every edge."""
        whole = self._whole
        seqs = self._edges["source_seq"][whole], self._edges["target_seq"][whole]
        return self._source[whole], seqs[0], self._target[whole], seqs[1]

    @property
    def slot(self) -> Ints:
        """Whether each edge is a slot."""
        return self._edges["slot"][self._whole]

    def addressed(self, where: Any = True) -> tuple[Ints, Ints, Ints]:
        """(source, its seq, target) of every slot, delivered or not."""
        slots = self._edges["slot"] & where
        return self._source[slots], self._edges["source_seq"][slots], self._target[slots]

    def lost(self) -> Ints:
        """(source, its seq, target) of every slot that was never delivered."""
        return np.column_stack(self.addressed(self._edges["target_seq"] == 0))

    @cached_property
    def messages(self) -> tuple[Ints, Ints, Ints, Ints, Ints, Ints]:
        """(source, target, time sent, gap, whether these count, whether a slot) of edges of messages."""
        of = (self._edges["target_seq"] > 0) & ~self._edges["cause"]
        columns = (self._edges[name][of] for name in ("sent", "gap", "timed", "slot"))
        return (self._source[of], self._target[of], *columns)

    def timed(self, origin: int) -> tuple[Ints, Ints, Ints, Ints]:
        """(source, target, time sent since the origin, gap) of edges of messages that have them."""
        source, target, sent, gap, timed, _ = self.messages
        return source[timed], target[timed], sent[timed] - origin, gap[timed]

    def absent_causes(self) -> list[str]:
        """For every cause that is not an event, the reason to quarantine it."""
        return [
            f"{self._name(e, 'target')} names the cause {self._name(e, 'source')}, which is not in the trace"
            for e in np.flatnonzero(self._edges["cause"] & ~self._real).tolist()
        ]

    def _name(self, e: int, end: str) -> str:
        process, seq = self._local[self._edges[end][e]], int(self._edges[f"{end}_seq"][e])
        if process == UNNAMED and seq < 1:
            return f"None#{seq - UNNAMED_SEQ if UNNAMED_SEQ < seq < UNNAMED_SEQ // 2 else _number(seq)}"
        return f"{process}#{_number(seq)}"

    def rows(self) -> dict[str, Ints] | None:
        """What the split's events have besides edges: process, seq, time, timed, relevant; None if
        nothing."""
        if "row_process" not in self._arrays:
            return None
        rows = {name.removeprefix("row_"): self._arrays[name] for name in self._arrays if "row_" in name}
        return rows | {"process": self._known[rows["process"]]}

    def clocks(self) -> tuple[Ints, Ints, Ints] | None:
        """Logged clocks: (row of `rows`, process or -1, count) of each entry, and which rows have one."""
        if "clock_row" not in self._arrays:
            return None
        return self._arrays["clock_row"], self._arrays["clock_key"], self._arrays["clock_count"]

    @property
    def clock_names(self) -> list[str]:
        return unpack_names(self._arrays["clock_names"])


def _number(seq: int) -> int | None:
    return None if seq == UNNAMED_SEQ else seq
