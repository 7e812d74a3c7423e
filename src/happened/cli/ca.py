"""happened ca: an authority of one's own, and a certificate for each node.

Exit 0 written, 2 bad names, existing files or an unusable authority; nothing is overwritten, but for the
certificates that `renew` is asked to renew.
"""

import argparse
from pathlib import Path
from typing import Any

from ..core.exit_codes import ExitCode
from ..net import identity
from .terminal import local_path, note


def add_parser(subparsers: Any) -> None:
    parser = subparsers.add_parser(
        "ca",
        help="make certificates for nodes",
        description="An authority of your own for mutual TLS between nodes, and a certificate for each node.",
        epilog="example: happened ca init --dir pki && happened ca issue --dir pki alice bob carol",
    )
    actions = parser.add_subparsers(title="actions", metavar="ACTION", required=True)
    init = actions.add_parser("init", help="make the authority", description="Make the authority's key pair.")
    init.add_argument("--name", default="happened authority", help="what people see (default: %(default)s)")
    init.set_defaults(run=run_init)
    issue = actions.add_parser(
        "issue",
        help="make a certificate for each NAME",
        description="Make a key and a certificate for each node: the certificate's name is the node's name.",
    )
    issue.add_argument("names", metavar="NAME", nargs="+", help="a node's name")
    issue.set_defaults(run=run_issue)
    renew = actions.add_parser(
        "renew",
        help="let the certificate of each NAME last longer",
        description="Put a new certificate in the place of each node's, for the key that it has: so what the "
        "node has signed stays good.",
    )
    renew.add_argument("names", metavar="NAME", nargs="+", help="a node's name")
    renew.set_defaults(run=run_renew)
    for action, days in ((init, 3650), (issue, 365), (renew, 365)):
        action.add_argument(
            "--dir", type=local_path, default=Path("pki"), help="where the files are (default: pki)"
        )
        action.add_argument("--days", type=_days, default=days, help="valid for (default: %(default)s)")


def _days(text: str) -> int:
    if not text.isdigit() or not 1 <= int(text) <= 36500:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of days from 1 to 36500")
    return int(text)


def run_init(arguments: argparse.Namespace) -> int:
    identity.make_authority(arguments.dir, name=arguments.name, days=arguments.days)
    print(arguments.dir / identity.AUTHORITY_CERTIFICATE)
    note(
        f"{identity.AUTHORITY_CERTIFICATE} goes to every node; "
        f"{identity.AUTHORITY_KEY} stays here: whoever has it can be anybody"
    )
    return ExitCode.HOLDS


def run_issue(arguments: argparse.Namespace) -> int:
    for name in arguments.names:
        for path in identity.issue(arguments.dir, name, days=arguments.days):
            print(path)
    note(f"each node gets its own two files and {identity.AUTHORITY_CERTIFICATE}, and nobody else's .key")
    return ExitCode.HOLDS


def run_renew(arguments: argparse.Namespace) -> int:
    for name in arguments.names:
        print(identity.renew(arguments.dir, name, days=arguments.days))
    note("put each in the place of the old one, and in the folders of those who check what the node signs")
    return ExitCode.HOLDS
