"""Parts that studies share: runs that must end, watched machines, means over seeds, files of rows."""

from collections.abc import Callable, Sequence
from math import sqrt
from pathlib import Path
from statistics import NormalDist, fmean, stdev
from typing import Any, NamedTuple, get_args, get_type_hints

import pyarrow as pa
import pyarrow.parquet as pq

from ..core.errors import LocalProtocolError
from ..ordering import Effect, Machine, Multicast
from ..sim.simulation import Simulation

Progress = Callable[[int], object] | None
"""Called with the number of messages processed since the last call."""

# Student's t, two-sided 95 %, by degrees of freedom; beyond these `_student_t` expands the normal quantile.
_T = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228)
_ARROW = {str: pa.string(), int: pa.int64(), float: pa.float64()}


class Estimate(NamedTuple):
    """The mean of a measure over the seeds of a study."""

    mean: float
    error: float  # half the 95 % confidence interval; 0 with a single seed, which gives none


def estimate(samples: Sequence[float]) -> Estimate:
    freedom = len(samples) - 1
    error = _student_t(freedom) * stdev(samples) / sqrt(len(samples)) if freedom else 0.0
    return Estimate(fmean(samples), error)


def _student_t(freedom: int) -> float:
    if freedom <= len(_T):
        return _T[freedom - 1]
    z = NormalDist().inv_cdf(0.975)
    return z + (z**3 + z) / (4 * freedom)


def run_to_the_end(simulation: Simulation) -> None:
    """Run a simulation; LocalProtocolError if a message is never delivered."""
    if left := simulation.run():
        raise LocalProtocolError(f"{len(left)} messages were never delivered, the first of them {left[0]}")


class Watched:
    """Wraps a machine: calls before() before each input, then after(name of the input, that result)."""

    def __init__(
        self, machine: Machine, before: Callable[[], int], after: Callable[[str, int], None]
    ) -> None:
        self.wrapped, self._before, self._after = machine, before, after

    def __getattr__(self, name: str) -> Any:
        return getattr(self.wrapped, name)

    def multicast(self, to: Any, payload: bytes) -> Multicast:
        before = self._before()
        made = self.wrapped.multicast(to, payload)
        self._after("multicast", before)
        return made

    def receive(self, message: Any) -> list[Effect]:
        before = self._before()
        effects = self.wrapped.receive(message)
        self._after("receive", before)
        return effects


def schema_of(row: type[tuple[Any, ...]]) -> pa.Schema:
    """A column for each field of a named tuple."""
    return pa.schema(
        (name, next(_ARROW[kind] for kind in (hint, *get_args(hint)) if kind in _ARROW))
        for name, hint in get_type_hints(row).items()
    )


def write_rows(rows: Sequence[dict[str, Any]], schema: pa.Schema, file: Path) -> None:
    pq.write_table(pa.Table.from_pylist(list(rows), schema=schema), file, compression="zstd")
