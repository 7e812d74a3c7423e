"""`happened explore`: every interleaving of every small program."""

import argparse
from typing import TYPE_CHECKING, Any

from ..core.errors import LocalProtocolError
from ..core.exit_codes import ExitCode
from ..core.orders import Order
from ..ordering import DEFAULT, protocols
from ..sim.automaton import Factory
from ..sim.explore import Exploration, explore
from ..sim.programs import CASTS
from .terminal import positive, print_json, progress
from .terrain_option import add_topology, read_terrain

if TYPE_CHECKING:
    from ..sim.terrain import Terrain

DESCRIPTION = """\
Run a protocol through every interleaving of every program of a given size (each process performs a
sequence of multicasts; packets arrive in any order), and judge it at every step: safety (the order it
promises, at most once), agreement (for total order: nobody delivers two messages the other way round),
liveness (everything is delivered) and, for protocols that tell their log, optimality (every message and
every log holds exactly the necessary information). A violation comes with a schedule that leads to it,
the shortest of its kind first.
"""

_PROMISES = {
    "safety": "safety",
    "agreement": "agreement",
    "liveness": "liveness",
    "optimality": "optimality",
    "error": "no exception",
}

EPILOG = """\
example:
  happened explore --protocol ks --processes 3 --messages 3      598 programs, a few seconds

Time grows steeply: 3 processes and 4 messages are 6,099 programs and take minutes; use --workers.
exit codes: 0 no violation, 1 violation, 2 bad usage
"""


def add_parser(subparsers: Any) -> None:
    parser = subparsers.add_parser(
        "explore",
        help="every interleaving of every small program",
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--protocol", default=DEFAULT, choices=sorted(protocols()), help="default: %(default)s"
    )
    parser.add_argument("--processes", type=positive, metavar="N", help="default: 3, or the topology's")
    add_topology(parser, "the network whose routers pass messages on; processes are then told apart")
    parser.add_argument(
        "--messages", type=positive, default=3, metavar="M", help="in all; default: %(default)s"
    )
    parser.add_argument(
        "--casts", choices=CASTS, default=None, help="what is sent; default: the most the protocol offers"
    )
    parser.add_argument("--fifo", action="store_true", help="packets of one channel arrive in the order sent")
    parser.add_argument(
        "--no-self", action="store_true", help="leave out messages addressed to their own sender"
    )
    parser.add_argument(
        "--workers", type=positive, default=1, metavar="K", help="processes to explore with; default: 1"
    )
    parser.add_argument(
        "--order",
        choices=[str(order) for order in Order if order is not Order.NONE],
        help="the order to judge by; default: the one the protocol promises",
    )
    parser.add_argument("--json", action="store_true", help="the result as JSON")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    facts = protocols()[arguments.protocol]
    casts = arguments.casts or next(cast for cast in CASTS if cast in facts.casts)
    if casts not in facts.casts:
        raise LocalProtocolError(f"{arguments.protocol} offers {', '.join(sorted(facts.casts))}, not {casts}")
    if facts.fifo_links and not arguments.fifo:
        raise LocalProtocolError(f"{arguments.protocol} needs FIFO links; add --fifo")
    order = Order(arguments.order) if arguments.order else facts.order
    make: str | Factory = arguments.protocol
    processes, routers, terrain = arguments.processes or 3, 0, read_terrain(arguments.topology)
    if terrain is not None:
        make, processes, routers = _on_terrain(terrain, arguments)
    with progress("exploring", unit="programs") as bar:

        def advance(done: int, total: int) -> None:
            bar.total = total
            bar.update(done - bar.n)

        result = explore(
            make,
            processes,
            arguments.messages,
            fifo=arguments.fifo,
            self_addressed=not arguments.no_self,
            casts=casts,
            order=order,
            renamed=terrain is not None,
            routers=routers,
            workers=arguments.workers,
            progress=advance,
        )
    if arguments.json:
        print_json(_as_json(arguments, processes, casts, order, result))
    else:
        _print(order, result)
    return ExitCode.VIOLATED if result.violations else ExitCode.HOLDS


def _on_terrain(terrain: "Terrain", arguments: argparse.Namespace) -> tuple[Factory, int, int]:
    from ..sim.terrain import relays

    if not relays(arguments.protocol):
        able = ", ".join(name for name in sorted(protocols()) if relays(name))
        raise LocalProtocolError(
            f"{arguments.protocol} sends directly and can make no use of a topology; these relay: {able}"
        )
    if arguments.processes not in (None, terrain.applications):
        raise LocalProtocolError(
            f"{terrain.source} has {terrain.applications} processes; leave --processes out"
        )
    return (
        terrain.factory(arguments.protocol),
        terrain.applications,
        len(terrain.names) - terrain.applications,
    )


def _as_json(
    arguments: argparse.Namespace, processes: int, casts: str, order: str, result: Exploration
) -> dict[str, Any]:
    return {
        "protocol": arguments.protocol,
        "processes": processes,
        "messages": arguments.messages,
        "casts": casts,
        "order": order,
        "fifo": arguments.fifo,
        "self_addressed": not arguments.no_self,
        "programs": result.programs,
        "states": result.states,
        "transitions": result.transitions,
        "programs_violating": result.counts(),
        "violations": [
            {
                "kind": violation.kind,
                "program": str(violation.program),
                "reason": violation.reason,
                "schedule": list(violation.schedule),
            }
            for violation in result.violations
        ],
    }


def _print(order: str, result: Exploration) -> None:
    print(f"{'order':<12} {order:>12}")
    for name in ("programs", "states", "transitions"):
        print(f"{name:<12} {getattr(result, name):>12,}")
    for kind, count in result.counts().items():
        verdict = f"violated by {count:,} programs" if count else "holds"
        print(f"{_PROMISES[kind]:<12} {verdict:>12}")
    for kind in result.counts():
        shortest = next((violation for violation in result.violations if violation.kind == kind), None)
        if shortest is not None:
            print(f"\n{_PROMISES[kind]} violated: {shortest.reason}")
            print(f"  program {shortest.program}")
            print(*(f"  {place:>3}. {line}" for place, line in enumerate(shortest.schedule, 1)), sep="\n")
