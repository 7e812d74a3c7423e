"""`happened topology deploy`: a configuration for every process of a topology file."""

import argparse
from pathlib import Path

from ..core.exit_codes import ExitCode
from ..ordering import Relays, protocols
from .options import option
from .parser import Parser
from .terminal import local_path, note, print_json

DESCRIPTION = """\
Write a configuration for every process of a topology file, routers included, with certificates or a key, so
that `happened node --config DIR/NAME.toml` starts each. Nothing is overwritten.
"""
EPILOG = """\
examples:
  happened topology deploy site.yaml --out site                        all on this machine, from port 7001
  happened topology deploy site.yaml --out site --host 10.0.0.5 --address po=10.1.0.1:7001

DIR gets the file itself, NAME.toml for each process, and pki/ or shared.key. For another machine, copy
NAME.toml, the topology file, and what its [security] names; never pki/ca.key. With --signatures, copy all
of pki/*.pem too: a process checks the signatures of the others with them.
"""


def add_arguments(parser: Parser) -> None:
    add = parser.add_argument
    routing = [name for name, facts in protocols().items() if facts.copies.relays is Relays.ROUTERS]
    add("path", type=local_path, metavar="FILE", help="YAML or GraphML")
    option(parser, "--out", "a directory; nothing there is overwritten", required=True)
    option(parser, "--protocol", choices=routing, default=routing[0])
    add(
        "--host",
        default="127.0.0.1",
        help="host of the processes without an --address (default: %(default)s)",
    )
    add(
        "--first-port",
        type=int,
        default=7001,
        metavar="PORT",
        help="first port; the others count up (default: %(default)s)",
    )
    add(
        "--address",
        type=_address,
        action="append",
        default=[],
        metavar="NAME=HOST:PORT",
        help="the address of one process; may be repeated",
    )
    add(
        "--security",
        choices=("certificates", "key", "plaintext"),
        default="certificates",
        help="a certificate each, one shared key, or nothing (loopback only) (default: %(default)s)",
    )
    add("--signatures", action="store_true", help="let every process sign its messages with its certificate")
    option(parser, "--json")


def run(arguments: argparse.Namespace) -> int:
    from ..net.deployment import Addresses, deploy

    addresses = Addresses(arguments.host, arguments.first_port, dict(arguments.address))
    written: list[Path] = deploy(
        arguments.path,
        arguments.out,
        protocol=arguments.protocol,
        security=arguments.security,
        addresses=addresses,
        signatures=arguments.signatures,
    )
    if arguments.json:
        print_json({"configurations": list(map(str, written))})
    else:
        print(*written, sep="\n")
    note("start each with: happened node --config FILE; with --stay it goes on after the end of its stdin")
    return ExitCode.HOLDS


def _address(text: str) -> tuple[str, str]:
    name, equals, address = text.partition("=")
    if not name or not equals or ":" not in address:
        raise argparse.ArgumentTypeError(f"an address is written NAME=HOST:PORT, not {text!r}")
    return name, address
