"""The space–time diagram as a picture that stands alone; light or dark as the reader's screen is."""

from collections.abc import Iterator, Sequence

from ...core.errors import LocalProtocolError
from ..diagram import MOST_EVENTS, STYLE, diagram
from ..prepared import Prepared


def write(computations: Sequence[Prepared]) -> Iterator[str]:
    if not computations:
        raise LocalProtocolError("there are no events to draw")
    if len(computations) > 1 or computations[0].c.events > MOST_EVENTS:
        events = sum(each.c.events for each in computations)
        raise LocalProtocolError(
            f"a picture shows one computation of at most {MOST_EVENTS:,} events, and here are "
            f"{len(computations):,} with {events:,}; choose a part (--past, --window, …)"
        )
    yield diagram(computations[0], standalone=STYLE)
