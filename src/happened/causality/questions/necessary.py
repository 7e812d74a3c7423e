"""The least information that each message had to carry, which the optimal protocol would have sent."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from ..epochs import places
from ..linearization import offsets_of
from ..marks import MOST_PROCESSES, UnitState, count_units
from ..necessary import COUNTS, NecessaryUnits
from .question import EVENT, Answers, Arrays, ColumnFold, EpochView, Fold, Question, Subject, blocks_of

CELLS = 8192  # Marks per event that a walk processes at once: all pairs of 90 processes

NECESSARY = pa.schema([*EVENT, COUNTS.field("destination"), COUNTS.field("units")])
"""`event` is the send of a message, and `destination` one of the message's destinations."""


class NecessaryQuestion(Question):
    """Skips computations that are cut into epochs and have more than MOST_PROCESSES processes."""

    name = "necessary"
    help = "what the optimal protocol would have had to carry on each message"
    tables: ClassVar = {"necessary": NECESSARY}
    totals = ("necessary_units_mean",)

    def whole(self, subject: Subject, answers: Answers) -> None:
        if not subject.computation.slot_dest.size:
            return
        units = NecessaryUnits(subject.computation, subject.vectors)
        answers.totals["necessary_units"] += int(units.edge_counts.sum())
        answers.totals["necessary_edges"] += len(units.edge_counts)
        c = subject.computation
        names = [*c.event_columns(c.slot_send), c.names_of(c.slot_dest)[1]]
        answers.add("necessary", pa.table([*names, pa.array(units.edge_counts)], schema=NECESSARY))

    def fold(self, timestamps: str, processes: int) -> Fold | None:
        return NecessaryFold(processes) if processes <= MOST_PROCESSES else None

    def summarise(self, totals: Mapping[str, int]) -> dict[str, Any]:
        edges = totals.get("necessary_edges", 0)
        return {"necessary_units_mean": totals["necessary_units"] / edges if edges else None}


class NecessaryFold(ColumnFold):
    def __init__(self, processes: int, columns: range | None = None) -> None:
        super().__init__(processes, columns)
        self._state = UnitState.beginning(processes, self.columns)

    def blocks(self) -> list[ColumnFold]:
        n = self.processes
        return [NecessaryFold(n, block) for block in blocks_of(n, max(1, CELLS // max(1, n)))]

    def look(self, view: EpochView) -> Arrays:
        addressed, events = view.addressed, view.epoch.events
        place = places(view.epoch, addressed[:, 0], addressed[:, 1])
        offsets = offsets_of(np.bincount(place, minlength=events))
        counts, self._state = count_units(
            view.epoch, view.is_slot, offsets, addressed[:, 2], self._state, view.kept, view.arranged,
            self.columns,
        )  # fmt: skip
        return {"counts": counts}

    def tell(self, view: EpochView, seen: Sequence[Arrays], answers: Answers) -> None:
        addressed = view.addressed
        counts = np.sum([each["counts"] for each in seen], axis=0)
        answers.totals["necessary_units"] += int(counts.sum())
        answers.totals["necessary_edges"] += counts.size
        names = [*view.event_columns(addressed[:, 0], addressed[:, 1]), view.processes(addressed[:, 2])[1]]
        answers.add("necessary", pa.table([*names, pa.array(counts)], schema=NECESSARY))


QUESTION = NecessaryQuestion()
