"""happened keygen: a shared key for links between nodes that trust one another, as in a laboratory.

Exit 0 written, 2 the file exists or cannot be written.
"""

import argparse
from typing import Any

from ..core.exit_codes import ExitCode
from ..net import identity
from .terminal import local_path, note


def add_parser(subparsers: Any) -> None:
    parser = subparsers.add_parser(
        "keygen",
        help="make a shared key for the links of a laboratory",
        description="Write a fresh random key for all nodes of a group to share (mode 0600). It keeps "
        "strangers out and frames intact, but does not hide them, and whoever holds it can take any name: "
        "`happened ca` makes certificates that tell nodes apart.",
    )
    parser.add_argument("path", metavar="FILE", type=local_path, help="where to write it; never overwritten")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    identity.make_key(arguments.path)
    print(arguments.path)
    note("copy it to every node, and keep it from everyone else")
    return ExitCode.HOLDS
