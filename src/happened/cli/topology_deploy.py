"""Write a configuration for every process of a topology file, routers included, with certificates or a key,
so that `happened node --config DIR/NAME.toml` starts each. Nothing is overwritten.
"""

import argparse
from pathlib import Path

from ..ordering import Relays, protocols
from .options import given, local_path, named_address, option
from .parser import Parser
from .terminal import note, print_answer

EPILOG = """\
examples:
  happened topology deploy site.yaml --out site                        all on this machine, from port 7001
  happened topology deploy site.yaml --out site --host 10.0.0.5 --address po=10.1.0.1:7001

DIR gets the file itself, NAME.toml for each process, and pki/ or shared.key. For another machine, copy
NAME.toml, the topology file, and what its [security] names; never pki/ca.key. With --signatures, copy all
of pki/*.pem too: a process checks the signatures of the others with them.
"""
SECURITY = ("certificates", "key", "plaintext")


def add_arguments(parser: Parser) -> None:
    routing = [name for name, facts in protocols().items() if facts.copies.relays is Relays.ROUTERS]
    option(parser, "path FILE", "YAML or GraphML", type=local_path)
    option(parser, "--out", "a directory; nothing there is overwritten", required=True)
    option(parser, "--protocol", choices=routing, default=routing[0])
    option(parser, "--host HOST", "host of processes without an --address", default="127.0.0.1")
    option(parser, "--first-port PORT", "their first port", type=int, default=7001)
    many = {"type": named_address, "action": "append", "default": []}
    option(parser, "--address NAME=HOST:PORT", "the address of one process; may be repeated", **many)
    about = "a certificate each, one shared key, or nothing (loopback only)"
    option(parser, "--security", about, choices=SECURITY, default=SECURITY[0])
    option(parser, "--signatures", "let every process sign its messages with its certificate")
    option(parser, "--json")


def run(arguments: argparse.Namespace) -> None:
    from ..net.deployment import Addresses, deploy

    written: list[Path] = deploy(
        arguments.path,
        arguments.out,
        addresses=Addresses(arguments.host, arguments.first_port, dict(arguments.address)),
        **given(arguments, "protocol security signatures"),
    )
    paths = list(map(str, written))
    print_answer(arguments, lambda: {"configurations": paths}, paths)
    note("start each with: happened node --config FILE; with --stay it goes on after the end of its stdin")
