"""Tell what sending directly with the optimal protocol, and relaying along the routes of a topology, would
carry over links, keep at processes, and delay: on made-up traffic between its processes, or on a recorded
trace.
"""

import argparse
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..core.errors import LocalProtocolError
from .options import local_path, option, read_terrain, usage_errors
from .parser import Parser
from .terminal import figure, print_answer, progress, table

if TYPE_CHECKING:
    from ..experiments.network_cost import Cost
    from ..sim.terrain import Terrain

EPILOG = """\
examples:
  happened topology cost site.yaml
  happened topology cost site.yaml --pattern fanout:2 --delay exp:0.02 --messages 20000
  happened topology cost site.yaml --traffic run         processes of the trace are found by their names

With --traffic, sends and arrivals are the recorded ones, and messages arrive at routers without delay.
"""


def add_arguments(parser: Parser) -> None:
    option(parser, "terrain FILE", "YAML or GraphML", type=read_terrain)
    option(parser, "--traffic TRACE", "take sends and arrivals from this trace", type=local_path)
    option(parser, "--messages", "of made-up traffic", default=5_000)
    option(parser, "--pattern", default="fanout:2")
    option(parser, "--interval", default=0.1)
    option(parser, "--delay", "on one link", default="exp:0.05")
    option(parser, "--fifo")
    option(parser, "--seed", "without it drawn, and printed")
    option(parser, "--json")


def run(arguments: argparse.Namespace) -> None:
    terrain = arguments.terrain
    if arguments.traffic is not None:
        traffic, costs = f"trace {arguments.traffic}", replayed_costs(terrain, arguments.traffic)
    else:
        seed = secrets.randbits(32) if arguments.seed is None else arguments.seed
        links = "FIFO links" if arguments.fifo else "links that reorder"
        traffic = f"pattern {arguments.pattern}, {links} of {arguments.delay} s, seed {seed}"
        costs = _simulated(terrain, arguments, seed)
    if not costs[0].messages:
        raise LocalProtocolError(f"{arguments.traffic}: no process sends to another in this trace")
    document = {"path": terrain.source, "traffic": traffic, "protocols": [*map(as_json, costs)]}
    print_answer(arguments, lambda: document, report(terrain, traffic, costs))


def as_json(cost: "Cost") -> dict[str, Any]:
    return cost._asdict() | {"bytes_per_message": cost.bytes_per_message}


def _simulated(terrain: "Terrain", arguments: argparse.Namespace, seed: int) -> "list[Cost]":
    from ..experiments.network_cost import candidates, simulated
    from ..sim.network import Network, parse_delay
    from ..sim.workload import Workload

    with usage_errors():
        workload = Workload(arguments.pattern, arguments.interval)
        network = Network(parse_delay(arguments.delay), arguments.fifo)
    if arguments.messages < 1:
        raise LocalProtocolError(f"--messages must be at least 1, not {arguments.messages}")
    names, messages = candidates(), arguments.messages
    with progress("simulating", messages * len(names), "messages") as bar:
        common = {"seed": seed, "workload": workload, "network": network, "progress": bar.update}
        return [simulated(name, terrain, messages, **common) for name in names]


def replayed_costs(terrain: "Terrain", path: Path) -> "list[Cost]":
    """The costs for the sends and arrivals of a trace."""
    from .. import trace
    from ..experiments.network_cost import candidates, replayed
    from ..experiments.replay import arrivals, numbered, recordings

    found = [numbered(each, terrain) for each in recordings(arrivals(trace.read(path))[0])]
    return [replayed(name, terrain, found) for name in candidates()]


COLUMNS = ("links/msg", "entries/link", "bytes/link", "bytes/msg", "kept", "kept routers", "delay ms")
LEGEND = """\
links/msg      links that a message crosses, all its copies together
entries/link   dependency entries carried over each of them; bytes of control information as encoded
bytes/msg      control information over all links of a message
kept           units that a process with an application remembers, on average; routers, beside it
delay ms       from the earliest possible arrival to the delivery, on average"""


def report(terrain: "Terrain", traffic: str, costs: "list[Cost]") -> Iterator[str]:
    routers = len(terrain.names) - terrain.applications
    yield f"{terrain.source}: {terrain.applications} processes, {routers} routers"
    yield f"{costs[0].messages:,} messages, {costs[0].deliveries:,} deliveries; {traffic}\n"
    rows = []
    for cost in costs:
        delay = None if cost.delay is None else cost.delay * 1e3
        carried = (cost.crossings, cost.entries, cost.control_bytes, cost.bytes_per_message)
        rows.append((cost.protocol, [*map(figure, (*carried, cost.kept, cost.kept_by_routers, delay))]))
    yield from table(COLUMNS, rows)
    yield f"\n{LEGEND}"
