"""`happened explore`: every interleaving of every small program."""

import argparse
from typing import TYPE_CHECKING, Any

from .. import tracking
from ..core.errors import LocalProtocolError
from ..core.exit_codes import ExitCode
from ..core.orders import Order
from ..ordering import DEFAULT, protocols
from ..sim.automaton import Factory
from ..sim.explore import Exploration, explore
from ..sim.explore_tracking import explore_tracking
from ..sim.programs import CASTS
from .options import add_promised_order, option
from .parser import Parser, meant
from .terminal import positive, print_json, progress
from .terrain_option import read_terrain

if TYPE_CHECKING:
    from ..sim.terrain import Terrain

PROCESSES = 3

DESCRIPTION = """\
Run a protocol through every interleaving of every program of a given size (each process performs a sequence
of multicasts; packets arrive in any order), and judge it at every step: safety (the order it promises, at
most once), agreement (for total order: no two processes deliver two messages in opposite orders), liveness
(everything is delivered) and, for protocols that expose their log, optimality (every message and every log
holds exactly the necessary information). A violation comes with a schedule that leads to it, the shortest
of its kind first.

A tracker is run through every computation with this many messages and relevant events (messages late, lost
and, without --fifo, overtaking each other), and every timestamp is compared with the causal past, kept as a
set.
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
  happened explore --protocol p2:1 --messages 4 --relevant-events 4     a tracker

Time grows steeply: 3 processes and 4 messages are 6,099 programs and take minutes; use --workers.
exit codes: 0 no violation, 1 violation, 2 bad usage
"""


def add_arguments(parser: Parser) -> None:
    add = parser.add_argument
    option(parser, "--protocol", "or a tracker", type=_name, default=DEFAULT)
    option(parser, "--processes", f"default: {PROCESSES}, or the topology's", type=positive)
    option(parser, "--topology", "processes are then told apart")
    option(parser, "--messages", type=positive, default=3)
    add(
        "--casts",
        choices=CASTS,
        default=None,
        help="the destinations of messages (default: the most general the protocol offers)",
    )
    add(
        "--relevant-events",
        type=positive,
        default=3,
        metavar="R",
        help="for a tracker: relevant events in all (default: %(default)s)",
    )
    option(parser, "--fifo")
    add("--no-self", action="store_true", help="leave out messages addressed to their own sender")
    add("--workers", type=positive, default=1, metavar="K", help="processes to explore with (default: 1)")
    add_promised_order(parser)
    option(parser, "--json")


def _name(name: str) -> str:
    if name not in protocols() and name.partition(":")[0] not in tracking.protocols():
        hint = meant(name, [*protocols(), *tracking.protocols()])
        known = f"{', '.join(sorted(protocols()))}; trackers: {', '.join(tracking.protocols())}"
        raise argparse.ArgumentTypeError(f"no protocol is called {name!r}; {hint}there are: {known}")
    return name


def run(arguments: argparse.Namespace) -> int:
    if arguments.protocol not in protocols():
        return _run_tracker(arguments)
    facts = protocols()[arguments.protocol]
    casts = arguments.casts or next(cast for cast in CASTS if cast in facts.assumes.casts)
    if casts not in facts.assumes.casts:
        raise LocalProtocolError(
            f"{arguments.protocol} offers {', '.join(sorted(facts.assumes.casts))}, not {casts}"
        )
    if facts.assumes.fifo_links and not arguments.fifo:
        raise LocalProtocolError(f"{arguments.protocol} needs FIFO links; add --fifo")
    order = Order(arguments.order) if arguments.order else facts.order
    make: str | Factory = arguments.protocol
    processes, routers, terrain = arguments.processes or PROCESSES, 0, read_terrain(arguments.topology)
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


def _run_tracker(arguments: argparse.Namespace) -> int:
    name, facts = arguments.protocol, tracking.facts_of(arguments.protocol)
    arguments.processes = arguments.processes or PROCESSES
    tracking.create(name, 0, arguments.processes)  # which refuses a wrong bound
    for given in ("casts", "order", "topology"):
        if getattr(arguments, given) is not None:
            raise LocalProtocolError(f"--{given} is for ordering protocols, and {name} is a tracker")
    if facts.fifo_links and not arguments.fifo:
        raise LocalProtocolError(f"{name} needs FIFO links; add --fifo")
    sizes = {key: getattr(arguments, key) for key in ("processes", "messages", "fifo")}
    sizes["relevant"] = arguments.relevant_events
    result = explore_tracking(name, **sizes, bound=tracking.bound_of(name))
    found = {"states": result.states, "transitions": result.transitions, "sends_refused": result.refused}
    if arguments.json:
        violations = [{"reason": each.reason, "schedule": list(each.schedule)} for each in result.violations]
        print_json({"protocol": name, **sizes, **found, "violations": violations})
    else:
        for title, count in found.items():
            print(f"{title.replace('_', ' '):<14} {count:>12,}")
        print(f"{'timestamps':<14} {'WRONG' if result.violations else 'exact':>12}")
        for violation in result.violations:
            print(f"\n{violation.reason}")
            print(*(f"  {place:>3}. {line}" for place, line in enumerate(violation.schedule, 1)), sep="\n")
    return ExitCode.VIOLATED if result.violations else ExitCode.HOLDS


def _on_terrain(terrain: "Terrain", arguments: argparse.Namespace) -> tuple[Factory, int, int]:
    from ..sim.terrain import relays

    if not relays(arguments.protocol):
        able = ", ".join(name for name in sorted(protocols()) if relays(name))
        raise LocalProtocolError(
            f"{arguments.protocol} sends directly and cannot use a topology; these relay: {able}"
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
