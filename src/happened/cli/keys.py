"""Make keys by which nodes recognise each other: an authority of your own for mutual TLS and a certificate
for each node; or one random key that all nodes of a laboratory share (mode 0600). A shared key keeps
strangers out and frames intact, but does not hide them, and whoever holds it can take any name.
"""

import argparse
from pathlib import Path

from ..net import identity
from .options import local_path, option
from .parser import Parser, add_command, add_forms
from .terminal import note

EPILOG = """\
examples:
  happened node keys authority --pki pki && happened node keys issue --pki pki alice bob carol
  happened node keys shared lab.key

Nothing is overwritten, except the certificates that `renew` renews.
"""


def add_arguments(parser: Parser) -> None:
    forms = add_forms(parser)
    init = add_command(forms, "authority", authority)
    option(init, "--name NAME", "its name", default="happened authority")
    each = [add_command(forms, "issue", issue), add_command(forms, "renew", renew)]
    for form in (init, *each):
        if form is not init:
            option(form, "names NAME", "a node's name", nargs="+")
        option(form, "--pki", default=Path("pki"))
        option(form, "--days", type=_days, default=3650 if form is init else 365)
    about = "where to write it; never overwritten"
    option(add_command(forms, "shared", shared), "path FILE", about, type=local_path)


def _days(text: str) -> int:
    if not text.isdigit() or not 1 <= int(text) <= 36500:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of days from 1 to 36500")
    return int(text)


def authority(arguments: argparse.Namespace) -> None:
    """Make the authority's key pair."""
    identity.make_authority(arguments.pki, name=arguments.name, days=arguments.days)
    print(arguments.pki / identity.AUTHORITY_CERTIFICATE)
    note(
        f"{identity.AUTHORITY_CERTIFICATE} goes to every node; "
        f"{identity.AUTHORITY_KEY} stays here: whoever has it can be anybody"
    )


def issue(arguments: argparse.Namespace) -> None:
    """Make a key and a certificate for each node: the certificate's name is the node's name."""
    for name in arguments.names:
        print(*identity.issue(arguments.pki, name, days=arguments.days), sep="\n")
    note(f"each node gets its own two files and {identity.AUTHORITY_CERTIFICATE}, and nobody else's .key")


def renew(arguments: argparse.Namespace) -> None:
    """Put a new certificate in the place of each node's, for the key that it has, so that what the node has
    signed stays good."""
    for name in arguments.names:
        print(identity.renew(arguments.pki, name, days=arguments.days))
    note("put each in the place of the old one, and in the folders of those who check what the node signs")


def shared(arguments: argparse.Namespace) -> None:
    """Write a fresh random key that all nodes share to a file."""
    identity.make_key(arguments.path)
    print(arguments.path)
    note("copy it to every node, and keep it from everyone else")
