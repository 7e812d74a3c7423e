"""Propose zones and gateways for the processes of a trace, by who sent to whom how often: members of a zone
mostly send to each other, and its gateway is the member that sends most to other zones. Writes them as a
topology, and prints what the protocols would have carried there for the same sends, beside the optimal one
without zones.
"""

import argparse
from collections.abc import Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import Any

from ..core.errors import CausalityError
from .options import add_output, local_path, option, read_terrain
from .output import replacing
from .parser import Parser
from .terminal import print_answer
from .topology_cost import as_json, replayed_costs, report


def add_arguments(parser: Parser) -> None:
    option(parser, "trace TRACE", "what was recorded", type=local_path)
    add_output(parser, "a new file (.yaml)", required=True)
    option(parser, "--json")


def run(arguments: argparse.Namespace) -> None:
    from .. import trace
    from ..topology.suggestion import kept_inside, suggest
    from ..trace.traffic import volumes

    table = trace.read(arguments.trace)
    sent = volumes(table)
    if not sent:
        raise CausalityError(f"{arguments.trace}: no process sends to another in this trace")
    document = suggest(sent, sorted(set(table["process"].to_pylist())))
    if "zones" not in document:
        raise CausalityError(
            f"{arguments.trace}: found no zones: its processes send to each other too evenly; use ks, "
            "which sends directly and needs none"
        )
    with replacing(arguments.out, force=arguments.force, reads=[arguments.trace]):
        _write(arguments.out, document, arguments.trace)
    terrain = read_terrain(arguments.out)
    costs = replayed_costs(terrain, arguments.trace)
    inside = kept_inside(document, sent)
    told = {
        "path": str(arguments.out),
        "topology": document,
        "inside": inside,
        "protocols": [*map(as_json, costs)],
    }
    lines = chain(_told(arguments.out, document, inside), report(terrain, f"trace {arguments.trace}", costs))
    print_answer(arguments, lambda: told, lines)


def _write(out: Path, document: Mapping[str, Any], source: Path) -> None:
    from ..topology import from_document, refuse
    from ..topology.documents import written

    if out.suffix.lower() not in (".yaml", ".yml"):
        raise CausalityError(f"{out}: the output is YAML; name a file that ends in .yaml or .yml")
    refuse(from_document(document, str(out)), str(out))
    try:
        with out.open("x", encoding="utf-8") as file:
            file.write(f"# Zones and gateways that `happened topology suggest` proposes for {source.name}.\n")
            file.write(written(document))
    except FileExistsError as error:
        raise CausalityError(f"{out} exists already; name another, or give --force") from error
    except OSError as error:
        raise CausalityError(f"{out}: cannot be written: {error.strerror or error}") from error


def _told(out: Path, document: Mapping[str, Any], inside: float) -> Iterator[str]:
    zones = document["zones"]
    yield f"{len(zones)} zones; {inside:.0%} of the copies sent stay in theirs"
    for zone in zones.values():
        yield f"  {', '.join(zone['gateways'])}: {' '.join(zone['processes'])}"
    alone = [name for name in document["processes"] if all(name not in z["gateways"] for z in zones.values())]
    if alone:
        yield f"  in none: {' '.join(alone)}"
    yield f"written to {out}; `happened topology check {out}` judges it, `deploy` makes it run"
    yield ""
