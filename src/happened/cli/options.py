"""How commands declare their arguments, and the options that several have: one spelling and one meaning.

`option(parser, "--hours H", "of silence", default=6)` adds an option that takes a value, `option(parser,
"--stay", "…")` one that does not, and `option(parser, "trace TRACE", "…")` an argument. Of an option in
COMMON the text says only what it does in this command. `tests/cli/test_options.py` refuses an option that
two commands explain differently and that is not in COMMON.
"""

import argparse
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..core.errors import LocalProtocolError
from ..core.orders import Order

if TYPE_CHECKING:
    from ..sim.terrain import Terrain
    from ..trace.store import AnyPath
    from ..view.pages import Viewed
    from ..view.prepared import Prepared
    from ..view.slicing import Slice


def local_path(text: str) -> Path:
    """The type of an argument that is a path of this machine: refuses URLs, so that no directory called `s3:`
    is created."""
    path = stored_path(text) if "://" in text else Path(text)  # without pyarrow, unless it may be a URL
    if not isinstance(path, Path):
        raise LocalProtocolError(f"{path}: this command takes local paths only; give one of this machine")
    return path


def stored_path(text: str) -> "AnyPath":
    """The type of an argument that is a path of this machine or a URL of a store."""
    from ..trace.store import any_path

    return any_path(text)


def read_terrain(text: str | Path) -> "Terrain":
    """The type of an argument that is a topology file: the terrain that it describes."""
    from ..sim.terrain import Terrain
    from ..topology import derive, load

    topology = load(path := local_path(str(text)))
    applications = topology.applications
    names = (*applications, *(name for name in topology.graph if name in topology.routers))
    return Terrain(str(path), names, len(applications), derive(topology, names=names).places)


def positive(text: str) -> int:
    if not text.isascii() or not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"a positive whole number is needed, not {text!r}")
    return int(text)


def named_address(text: str) -> tuple[str, str]:
    name, equals, address = text.partition("=")
    if not name or not equals or ":" not in address:
        raise argparse.ArgumentTypeError(f"an address is written NAME=HOST:PORT, not {text!r}")
    return name, address


# Values that are defined in rooms that import numpy, repeated here so that `--help` is fast; a test compares
# them.
GAPS = ("refuse", "renumber")
JUDGED = ("causal", "fifo", "total")
TIMESTAMPS = ("full", "sparse", "predecessors")

EVENT = "`process#seq`, the id of a span, a message, or a label or a part of one"
PATTERNS = "who is sent to, a pattern (see `happened help patterns`)"
DELAYS = "seconds that a packet takes (see `happened help patterns`)"
WORK = "for intermediates of Spark: a directory or URL that all executors reach"
RELEVANT = "probability of a relevant event after a send or a delivery"
COMPLETE = (
    "the trace has all that happened: a message that is never delivered where one sent causally after it "
    "was, violates causal order (default for what `happened simulate` made)"
)
CUT_OFF = "it may end too soon: such a message leaves causal order undecided (default for other traces)"

RENUMBER = (
    "renumber: the trace is a window of a longer one, or was filtered, and seq has gaps; what it lacks is "
    "unknown, not false (default: a computation with a gap is quarantined)"
)

COMMON: dict[str, dict[str, Any]] = {
    "--complete": {"action": "store_true", "default": None, "help": COMPLETE},
    "--computation": {"metavar": "NAME", "help": "this computation alone, of several"},
    "--cut-off": {"dest": "complete", "action": "store_false", "help": CUT_OFF},
    "--days": {"metavar": "N", "help": "days that a certificate is valid"},
    "--delay": {"metavar": "DELAY", "help": DELAYS},
    "--fifo": {"action": "store_true", "help": "packets of one link arrive in the order sent"},
    "--force": {"action": "store_true", "help": "replace earlier results at --out, and nothing else"},
    "--interval": {"type": float, "metavar": "MEAN", "help": "mean seconds between two sends of a process"},
    "--json": {"action": "store_true", "help": "print one JSON document instead of text"},
    "--limit": {"type": positive, "metavar": "N", "help": "list at most N"},
    "--local": {"action": "store_true", "help": "work in this process, without Spark"},
    "--master": {"metavar": "URL", "help": "work on this Spark master"},
    "--messages": {"type": int, "metavar": "M", "help": "messages sent in all"},
    "--order": {"help": "the order to judge by"},
    "--out": {"type": local_path, "metavar": "PATH", "help": "where to write"},
    "--pattern": {"metavar": "PATTERN", "help": PATTERNS},
    "--pki": {"type": local_path, "metavar": "DIR", "help": "the directory of `happened node keys`"},
    "--processes": {"metavar": "N", "help": "how many processes"},
    "--protocol": {"metavar": "NAME", "help": "the protocol that orders messages"},
    "--protocols": {"metavar": "A,B", "help": "the protocols that order messages"},
    "--relevant": {"type": float, "metavar": "P", "help": RELEVANT},
    "--seed": {"type": int, "metavar": "N", "help": "of the random numbers; with several runs, of the first"},
    "--settle": {"metavar": "S", "help": "seconds of silence after which a computation is finished"},
    "--topology": {"type": read_terrain, "metavar": "FILE", "help": "the network to send over"},
    "--trace": {"type": local_path, "metavar": "DIR", "help": "record this node's events there"},
    "--tracker": {"metavar": "NAME", "help": "timestamp relevant events by this protocol"},
    "--trackers": {"metavar": "A,B", "help": "the protocols that timestamp relevant events"},
    "--work": {"type": stored_path, "metavar": "DIR", "help": WORK},
}  # fmt: skip


def option(parser: Any, words: str, here: str = "", /, **more: Any) -> None:
    """Add an argument to a parser or a group: its name, its metavar if it takes a value, and its help."""
    name, _, metavar = words.partition(" ")
    known = COMMON.get(name, {"help": ""}) | more
    if metavar:
        known["metavar"] = metavar
    elif name.startswith("--") and name not in COMMON and not known.keys() & {"choices", "action"}:
        known["action"] = "store_true"
    joint = "; " if known["help"] and here and not here.startswith("(") else " "
    known["help"] = f"{known['help']}{joint}{here}".strip()
    if more.get("default") is not None and "action" not in known and "default" not in known["help"]:
        known["help"] += " (default: %(default)s)"
    parser.add_argument(name, **known)


def given(arguments: argparse.Namespace, names: str) -> dict[str, Any]:
    """The values of these arguments, by their names."""
    return {name: getattr(arguments, name) for name in names.split()}


@contextmanager
def usage_errors() -> Iterator[None]:
    """What refuses a value of an option with a ValueError refuses a command."""
    try:
        yield
    except ValueError as error:
        raise LocalProtocolError(str(error)) from error


def refuse_given(arguments: argparse.Namespace, names: Iterable[str], reason: str) -> None:
    """Raise if one of these options is given."""
    for name in names:
        if getattr(arguments, name) not in (None, False):
            raise LocalProtocolError(f"--{name.replace('_', '-')} {reason}")


def add_output(parser: Any, here: str, **more: Any) -> None:
    """--out and --force, of every command that writes results."""
    option(parser, "--out", here, **more)
    option(parser, "--force")


def add_where(parser: argparse.ArgumentParser, size: str) -> None:
    """--master or --local; `size` is the size from which Spark is used by default."""
    where = parser.add_mutually_exclusive_group()
    option(where, "--master", f"without it from {size} on, as local[*]")
    option(where, "--local", "however large the trace is")


def add_completeness(parser: argparse.ArgumentParser) -> None:
    either = parser.add_mutually_exclusive_group()
    option(either, "--complete")
    option(either, "--cut-off")


def add_gaps(parser: argparse.ArgumentParser) -> None:
    option(parser, "--gaps", RENUMBER, choices=GAPS, default=GAPS[0])


def add_clock_order(parser: argparse.ArgumentParser, here: str) -> None:
    option(parser, "--clock-order", f"let the clock of a process order its events; {here}")


def add_promised_order(parser: argparse.ArgumentParser) -> None:
    """--order of the commands that run a protocol."""
    orders = [str(order) for order in Order if order is not Order.NONE]
    option(parser, "--order", "without it the one that the protocol promises", choices=orders)


def add_judged_order(parser: argparse.ArgumentParser) -> None:
    """--order of the commands that judge a trace."""
    option(parser, "--order", choices=JUDGED, default=JUDGED[0])


# A part of a trace.

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
