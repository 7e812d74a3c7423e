"""Options that several commands have: one spelling and one meaning, whoever takes them.

`option(parser, "--out", "a page")` adds one; the text after its name says what it does in this command.
`tests/cli/test_options.py` refuses an option that two commands explain differently and that is not in COMMON.
"""

import argparse
from typing import Any

from ..core.orders import Order
from .terminal import local_path, positive, stored_path

# Values that are defined in rooms that import numpy, repeated here so that `--help` is fast; a test compares
# them.
GAPS = ("refuse", "renumber")
JUDGED = ("causal", "fifo", "total")
TIMESTAMPS = ("full", "sparse", "predecessors")

PATTERNS = "who is sent to, a pattern (see `happened help patterns`)"
DELAYS = "seconds that a packet takes (see `happened help patterns`)"
WORK = "for intermediates of Spark: a directory or URL that all executors reach"
RELEVANT = "probability of a relevant event after a send or a delivery"
COMPLETE = (
    "the trace has all that happened: a message that is never delivered where one sent causally after it "
    "was, violates causal order (default for what `happened simulate` made)"
)
CUT_OFF = "it may end too soon: such a message leaves causal order undecided (default for other traces)"

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
    "--topology": {"type": local_path, "metavar": "FILE", "help": "the network to send over"},
    "--trace": {"type": local_path, "metavar": "DIR", "help": "record this node's events there"},
    "--tracker": {"metavar": "NAME", "help": "timestamp relevant events by this protocol"},
    "--trackers": {"metavar": "A,B", "help": "the protocols that timestamp relevant events"},
    "--work": {"type": stored_path, "metavar": "DIR", "help": WORK},
}  # fmt: skip


def option(parser: Any, name: str, here: str = "", /, **more: Any) -> argparse.Action:
    """Add an option of COMMON to a parser or a group; `here` says what it does in this command."""
    common = COMMON[name] | more
    default = " (default: %(default)s)" if more.get("default") is not None else ""
    joint = "" if not here else " " if here.startswith("(") else "; "
    common["help"] += f"{joint}{here}{default}"
    action: argparse.Action = parser.add_argument(name, **common)
    return action


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
    parser.add_argument(
        "--gaps",
        choices=GAPS,
        default=GAPS[0],
        help="renumber: the trace is a window of a longer one, or was filtered, and seq has gaps; what it "
        "lacks is unknown, not false (default: a computation with a gap is quarantined)",
    )


def add_promised_order(parser: argparse.ArgumentParser) -> None:
    """--order of the commands that run a protocol."""
    orders = [str(order) for order in Order if order is not Order.NONE]
    option(parser, "--order", "without it the one that the protocol promises", choices=orders)


def add_judged_order(parser: argparse.ArgumentParser) -> None:
    """--order of the commands that judge a trace."""
    option(parser, "--order", choices=JUDGED, default=JUDGED[0])
