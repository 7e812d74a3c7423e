"""Errors of questions: unknown names, ambiguous names, and traces without times."""

from collections.abc import Iterable

from ..core.errors import CausalityError

MOST_CANDIDATES = 10


class UnknownName(CausalityError):
    """Nothing in the trace goes by this name."""


class AmbiguousName(CausalityError):
    """Several things in the trace go by this name; `candidates` names each so that it is found."""

    def __init__(self, text: str, candidates: Iterable[tuple[str, str]]) -> None:
        every = [*candidates]
        self.candidates = tuple(name for name, _ in every)
        shown = "".join(f"\n  {name}  {about}".rstrip() for name, about in every[:MOST_CANDIDATES])
        more = f"\n  … and {len(every) - MOST_CANDIDATES:,} more" if len(every) > MOST_CANDIDATES else ""
        super().__init__(f"{text!r} names {len(every):,} things; say which:{shown}{more}")


class NoTimes(CausalityError):
    """A question about time was asked of a trace that has none: it cannot be decided."""
