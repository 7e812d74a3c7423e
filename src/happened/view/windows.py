"""What a server shows of a computation that is too large for one page: windows, slices, paths."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from ..causality.linearization import Ints
from ..causality.reach import Extent, between, causal_path, future, past
from .prepared import Prepared
from .query import matching
from .scene import scene

MOST_EVENTS = 40_000
"""Of one window: some 2 MB, which a browser draws at once."""
MOST_FOUND = 1_000
COLUMNS = 1_024  # of the overview


@dataclass(eq=False)
class Windows:
    """The windows of one computation, by levels: its logical time axis."""

    prepared: Prepared

    @cached_property
    def _up_to(self) -> Ints:
        """How many events have a level of at most 0, 1, …"""
        return np.concatenate([[0], np.cumsum(np.bincount(self.prepared.levels)[1:])])

    @property
    def depth(self) -> int:
        return len(self._up_to) - 1

    def window(self, low: int, high: int) -> bytes:
        """The scene of these levels with a margin on either side; if that is too much, of the levels in
        their middle."""
        if self.prepared.c.events <= MOST_EVENTS:
            return scene(self.prepared)
        low, high = self._bounded(low, high)
        return scene(self.prepared, between(self.prepared.c, self.prepared.levels, low, high), (low, high))

    def _bounded(self, low: int, high: int) -> tuple[int, int]:
        depth = self.depth
        low, high = sorted((min(max(low, 1), depth), min(max(high, 1), depth)))
        middle, wanted = (low + high) // 2, 2 * (high - low + 1)
        # The widest half width, up to what is wanted, whose events are few enough.
        narrow, wide = 0, wanted
        while narrow < wide:
            half = (narrow + wide + 1) // 2
            first, last = max(1, middle - half), min(depth, middle + half)
            if self._up_to[last] - self._up_to[first - 1] <= MOST_EVENTS:
                narrow = half
            else:
                wide = half - 1
        return max(1, middle - narrow), min(depth, middle + narrow)

    def slice(self, e: int, direction: str) -> bytes:
        """The scene of the past or the future of an event: of more than MOST_EVENTS, the nearest levels."""
        c, levels = self.prepared.c, self.prepared.levels
        extent = past(c, e) if direction == "past" else future(c, e)
        note = f"The {direction} of {c.event(e).id}."
        if extent.events > MOST_EVENTS:
            distance = np.where(extent.mask(c), np.abs(levels - levels[e]), np.iinfo(np.int64).max)
            farthest = np.partition(distance, MOST_EVENTS)[MOST_EVENTS] - 1
            near = between(c, levels, levels[e] - farthest, levels[e] + farthest)
            extent = Extent(np.maximum(extent.begin, near.begin), np.minimum(extent.end, near.end))
            note += f" Its nearest {extent.events:,} events are shown."
        return scene(self.prepared, extent, note=note)

    def find(self, query: str) -> dict[str, Any]:
        """The events of the whole computation that a query means: how many, the first MOST_FOUND by their
        levels, and how many in each of COLUMNS stretches of the time axis."""
        c, levels = self.prepared.c, self.prepared.levels
        mask = matching(self.prepared, query)
        events = np.zeros(0, np.int64) if mask is None else np.flatnonzero(mask)
        columns = np.bincount((levels[events] - 1) * COLUMNS // max(self.depth, 1), minlength=COLUMNS)
        first = events[np.argsort(levels[events], kind="stable")][:MOST_FOUND].tolist()
        return {
            "count": int(events.size),
            "events": [{"event": c.event(e).id, "level": int(levels[e])} for e in first],
            "columns": columns.tolist(),
        }

    def reach(self, e: int) -> dict[str, int]:
        """How many events happened before and after one."""
        c = self.prepared.c
        return {"past": past(c, e).events - 1, "future": future(c, e).events - 1}

    def path(self, first: int, last: int) -> list[dict[str, Any]] | None:
        """The causal path between two events; None if the first did not happen before the last."""
        c, vectors = self.prepared.c, self.prepared.vectors
        if vectors is None or first == last or past(c, last).end[c.process[first]] < c.seq[first]:
            return None
        steps = causal_path(c, vectors, first, last)
        return [{"event": c.event(e).id, "level": int(self.prepared.levels[e])} for e in steps]
