"""`happened node keys`: an authority of one's own and a certificate for each node, or a key that nodes share.

Exit 0 written, 2 bad names, existing files or an unusable authority.
"""

import argparse
from pathlib import Path

from ..core.exit_codes import ExitCode
from ..net import identity
from .options import option
from .parser import Parser
from .terminal import local_path, note

DESCRIPTION = """\
Make keys by which nodes recognise each other: an authority of your own for mutual TLS and a certificate for
each node; or one random key that all nodes of a laboratory share (mode 0600). A shared key keeps strangers
out and frames intact, but does not hide them, and whoever holds it can take any name.
"""
EPILOG = """\
examples:
  happened node keys authority --pki pki && happened node keys issue --pki pki alice bob carol
  happened node keys shared lab.key

Nothing is overwritten, except the certificates that `renew` renews.
"""


def add_arguments(parser: Parser) -> None:
    actions = parser.add_subparsers(title="forms", metavar="FORM", required=True)
    init = actions.add_parser(
        "authority", help="make the authority", description="Make the authority's key pair."
    )
    init.add_argument(
        "--name", default="happened authority", help="the name that people see (default: %(default)s)"
    )
    init.set_defaults(run=run_init)
    issue = actions.add_parser(
        "issue",
        help="make a certificate for each NAME",
        description="Make a key and a certificate for each node: the certificate's name is the node's name.",
    )
    issue.set_defaults(run=run_issue)
    renew = actions.add_parser(
        "renew",
        help="let the certificate of each NAME last longer",
        description="Put a new certificate in the place of each node's, for the key that it has, so that\n"
        "what the node has signed stays good.",
    )
    renew.set_defaults(run=run_renew)
    for action, days in ((init, 3650), (issue, 365), (renew, 365)):
        if action is not init:
            action.add_argument("names", metavar="NAME", nargs="+", help="a node's name")
        option(action, "--pki", default=Path("pki"))
        option(action, "--days", type=_days, default=days)
    shared = actions.add_parser(
        "shared", help="make a key that all nodes share", description="Write a fresh random key to a file."
    )
    shared.add_argument("path", metavar="FILE", type=local_path, help="where to write it; never overwritten")
    shared.set_defaults(run=run_shared)


def _days(text: str) -> int:
    if not text.isdigit() or not 1 <= int(text) <= 36500:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of days from 1 to 36500")
    return int(text)


def run_init(arguments: argparse.Namespace) -> int:
    identity.make_authority(arguments.pki, name=arguments.name, days=arguments.days)
    print(arguments.pki / identity.AUTHORITY_CERTIFICATE)
    note(
        f"{identity.AUTHORITY_CERTIFICATE} goes to every node; "
        f"{identity.AUTHORITY_KEY} stays here: whoever has it can be anybody"
    )
    return ExitCode.HOLDS


def run_issue(arguments: argparse.Namespace) -> int:
    for name in arguments.names:
        for path in identity.issue(arguments.pki, name, days=arguments.days):
            print(path)
    note(f"each node gets its own two files and {identity.AUTHORITY_CERTIFICATE}, and nobody else's .key")
    return ExitCode.HOLDS


def run_renew(arguments: argparse.Namespace) -> int:
    for name in arguments.names:
        print(identity.renew(arguments.pki, name, days=arguments.days))
    note("put each in the place of the old one, and in the folders of those who check what the node signs")
    return ExitCode.HOLDS


def run_shared(arguments: argparse.Namespace) -> int:
    identity.make_key(arguments.path)
    print(arguments.path)
    note("copy it to every node, and keep it from everyone else")
    return ExitCode.HOLDS
