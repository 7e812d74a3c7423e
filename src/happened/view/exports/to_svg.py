"""Pictures that stand alone, as SVG, light or dark as the reader's screen is; and as PNG."""

from collections.abc import Callable, Iterator, Sequence

from ...core.errors import LocalProtocolError
from ..diagrams import MOST_EVENTS, diagram, hasse
from ..prepared import Prepared
from ..raster import png_of
from ..space_time import STANDALONE
from ..timeline import timeline

PICTURES: dict[str, Callable[[Prepared, str], str]] = {
    "space": diagram,
    "hasse": hasse,
    "spans": timeline,
}
"""Space–time diagram, immediate predecessors among the relevant events, the request with most spans."""


def write(computations: Sequence[Prepared], picture: str = "space") -> Iterator[str]:
    if not computations:
        raise LocalProtocolError("there are no events to draw")
    if len(computations) > 1:
        names = ", ".join(repr(each.c.name) for each in computations[:5])
        raise LocalProtocolError(
            f"a picture shows one computation, and here are {len(computations):,}; choose one with "
            f"--computation: {names}{', …' if len(computations) > 5 else ''}"
        )
    (only,) = computations
    if only.c.events > MOST_EVENTS:
        raise LocalProtocolError(
            f"a picture shows at most {MOST_EVENTS:,} events, and here are {only.c.events:,}; choose a part "
            "(--window 1..200, --past EVENT, …)"
        )
    drawn = PICTURES[picture](only, STANDALONE)
    if not drawn:
        raise LocalProtocolError(f"nothing to draw: no {picture} are recorded with their times")
    yield drawn


def write_png(computations: Sequence[Prepared], picture: str = "space") -> Iterator[bytes]:
    for svg in write(computations, picture):
        yield png_of(svg)
