"""The options that choose a part of a trace, and the part that they choose."""

import argparse
import re
from dataclasses import replace
from typing import TYPE_CHECKING

from ..core.errors import LocalProtocolError
from .ask import EVENT
from .options import option

if TYPE_CHECKING:
    from ..view.pages import Viewed
    from ..view.prepared import Prepared
    from ..view.slicing import Slice

UNITS = {"": 1, "ns": 1, "us": 1e3, "µs": 1e3, "ms": 1e6, "s": 1e9, "m": 60e9, "h": 3600e9}


def add_slice_options(parser: argparse.ArgumentParser) -> None:
    option(parser, "--computation")
    option(parser, "--past EVENT", f"what happened before an event: {EVENT}")
    option(parser, "--future EVENT", "what happened after an event, named likewise")
    option(parser, "--window A..B", "levels of logical time, such as 100..180", type=_window)
    option(parser, "--time A..B", "time since the first event, such as 1.5s..2s", type=_times)


def slice_of(arguments: argparse.Namespace) -> "Slice":
    from ..view.slicing import Slice

    named = getattr(arguments, "process", None)
    return Slice(
        past=arguments.past,
        future=arguments.future,
        window=arguments.window,
        times=arguments.time,
        processes=tuple(named.split(",")) if named else (),
    )


def chosen_part(arguments: argparse.Namespace, of: "Viewed") -> "tuple[Slice, list[Prepared]]":
    """The part that the options choose, with events by their ids, and its computations.

    An event is named as for `happened ask why`, and determines the computation.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    from ..ask import load
    from ..ask.finding import find_event

    part, computations = slice_of(arguments), of.chosen(arguments.computation)
    if part.past is None and part.future is None:
        return part, computations
    names = pa.array([each.c.name for each in computations], pa.string())
    table = of.checked.table
    history = load(table.filter(pc.is_in(table["computation"], value_set=names)))
    past = None if part.past is None else history.occurrence(find_event(history, part.past, "last"))
    future = None if part.future is None else history.occurrence(find_event(history, part.future, "first"))
    places = {event.computation for event in (past, future) if event is not None}
    if len(places) > 1:
        raise LocalProtocolError(
            f"nothing is between them: {arguments.past!r} and {arguments.future!r} belong to two computations"
        )
    part = replace(part, past=past and past.id, future=future and future.id)
    return part, [each for each in computations if each.c.name in places]


def _window(text: str) -> tuple[float, float]:
    found = re.fullmatch(r"(\d{1,12})\.\.(\d{1,12})", text)
    if found is None or int(found[1]) > int(found[2]):
        raise argparse.ArgumentTypeError(f"a window needs two levels, such as 100..180, not {text!r}")
    return int(found[1]), int(found[2])


def _times(text: str) -> tuple[float, float]:
    number = r"(\d{1,18}(?:\.\d{1,9})?)(ns|us|µs|ms|s|m|h|)"
    found = re.fullmatch(rf"{number}\.\.{number}", text)
    low, high = (float(found[k]) * UNITS[found[k + 1]] for k in (1, 3)) if found else (1.0, 0.0)
    if low > high:
        raise argparse.ArgumentTypeError(f"give two times with units, such as 1.5s..2s, not {text!r}")
    return low, high
