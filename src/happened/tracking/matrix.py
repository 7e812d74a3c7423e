"""Matrix clocks, after Wuu & Bernstein (PODC 1984): what each process knows of what each other knows.

Assumes    what tracker.py assumes.
Promises   exact vector timestamps, and for every process a lower bound of what it has heard of: an event that
           all rows count is known everywhere, and may be forgotten.
Leaves out any reduction: every message carries n × n entries.
Invariant  row l is the vector that l had at some event in our causal past; our own row is our vector, and no
           row exceeds it.
"""

from typing import Any, NamedTuple

from ..core.errors import RemoteProtocolError
from ..core.lanes import CLOCK_LIMIT, clock_lanes
from . import refusals
from .piggyback import WIDTH_BITS, BitReader, BitWriter, Timestamp, known_to_sender
from .tracker import Protocols, State, TrackerFacts, TrackerMachine

FACTS = TrackerFacts(
    "matrix",
    frozenset({"vector"}),
    fifo_links=False,
    bound="n²",
    description="what every process knows of every process, so that logs can be cut",
    paper="Wuu & Bernstein, Efficient solutions to the replicated log and dictionary problems, PODC 1984",
    number=6,
)


class MatrixPiggyback(NamedTuple):
    n: int
    rows: tuple[int, ...]
    forced: None = None

    @property
    def entries(self) -> int:
        return self.n * self.n

    @property
    def bits(self) -> int:
        return WIDTH_BITS + self.entries * self._width()

    def encode(self) -> bytes:
        out, width = BitWriter(), self._width()
        out.write(width, WIDTH_BITS)
        for row in self.rows:
            for value in clock_lanes(self.n).unpack(row):
                out.write(value, width)
        return out.to_bytes()

    def _width(self) -> int:
        return max(max(clock_lanes(self.n).unpack(row)) for row in self.rows).bit_length()


class Matrix(TrackerMachine):
    def __init__(self, me: int, n: int) -> None:
        super().__init__(FACTS.name, me, n)
        self._rows = [0] * n

    def relevant(self) -> Timestamp:
        geometry = clock_lanes(self.n)
        seq = geometry.get(self._rows[self.me], self.me) + 1
        refusals.countable(seq)
        self._rows[self.me] += 1 << geometry.width * self.me
        return Timestamp(self.me, seq, tuple(geometry.unpack(self._rows[self.me])))

    def known_by_all(self) -> tuple[int, ...]:
        """Per process, how many of its events are known to be known to all processes."""
        rows = [clock_lanes(self.n).unpack(row) for row in self._rows]
        return tuple(map(min, *rows)) if self.n > 1 else tuple(rows[0])

    def on_send(self, to: int) -> MatrixPiggyback:
        refusals.peer(to, self.me, self.n)
        return MatrixPiggyback(self.n, tuple(self._rows))

    def on_receive(self, sender: int, piggyback: Any) -> None:
        refusals.peer(sender, self.me, self.n)
        if not isinstance(piggyback, MatrixPiggyback) or piggyback.n != self.n:
            raise RemoteProtocolError(f"not a matrix of {self.n} processes: {piggyback!r:.100}")
        geometry, me = clock_lanes(self.n), self.me
        theirs = piggyback.rows[sender]
        for row in piggyback.rows:
            if geometry.at_least(theirs, row) != geometry.guards:
                raise RemoteProtocolError(f"{sender} knows that others know more than it does")
        refusals.own_value(geometry.get(theirs, me), geometry.get(self._rows[me], me))
        rows = list(map(geometry.maximum, self._rows, piggyback.rows))
        rows[me] = geometry.maximum(self._rows[me], theirs)
        self._rows = rows

    def join(self, process: int) -> None:
        super().join(process)
        self._rows.append(0)

    def decode(self, data: bytes, n: int | None = None) -> MatrixPiggyback:
        reader, n = BitReader(data), known_to_sender(n, self.n)
        width = reader.read(WIDTH_BITS)
        rows = [[reader.read(width) for _ in range(n)] for _ in range(n)]
        reader.finish()
        if max(map(max, rows)) >= CLOCK_LIMIT - 1:
            raise RemoteProtocolError("a matrix holds a value that no count reaches")
        later = (0,) * (self.n - n)  # rows of processes that its sender did not know
        return MatrixPiggyback(self.n, (*(clock_lanes(n).pack(row) for row in rows), *later))

    def save(self) -> State:
        return {"rows": [self._geometry.unpack(row) for row in self._rows]}

    def load(self, state: State) -> None:
        rows = [refusals.numbers(row, self._geometry) for row in state["rows"]]
        if len(rows) != self.n:
            raise ValueError(f"{len(rows)} rows")
        self._rows = rows


PROTOCOLS: Protocols = ((FACTS, Matrix),)
