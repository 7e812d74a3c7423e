"""Run a protocol through every interleaving of every program of a given size (each process performs a
sequence of multicasts; packets arrive in any order), and judge it at every step: safety (the order it
promises, at most once), agreement (for total order: no two processes deliver two messages in opposite
orders), liveness (everything is delivered) and, for protocols that expose their log, optimality (every
message and every log holds exactly the necessary information). A violation comes with a schedule that leads
to it, the shortest of its kind first.

A tracker is run through every computation with this many messages and relevant events (messages late, lost
and, without --fifo, overtaking each other), and every timestamp is compared with the causal past, kept as a
set.
"""

import argparse
from collections.abc import Iterable, Iterator
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
from .options import add_promised_order, given, option, positive, refuse_given
from .parser import Parser, meant
from .terminal import print_answer, progress

if TYPE_CHECKING:
    from ..sim.terrain import Terrain

PROCESSES = 3
COUNTS = ("programs", "states", "transitions")


EPILOG = """\
example:
  happened explore --protocol ks --processes 3 --messages 3      598 programs, a few seconds
  happened explore --protocol p2:1 --messages 4 --relevant-events 4     a tracker

Time grows steeply: 3 processes and 4 messages are 6,099 programs and take minutes; use --workers.
exit codes: 0 no violation, 1 violation, 2 bad usage
"""


def add_arguments(parser: Parser) -> None:
    option(parser, "--protocol", "or a tracker", type=_name, default=DEFAULT)
    option(parser, "--processes", f"default: {PROCESSES}, or the topology's", type=positive)
    option(parser, "--topology", "processes are then told apart")
    option(parser, "--messages", type=positive, default=3)
    about = "destinations of messages (default: the most the protocol offers)"
    option(parser, "--casts", about, choices=CASTS)
    option(parser, "--relevant-events R", "for a tracker: relevant events in all", type=positive, default=3)
    option(parser, "--fifo")
    option(parser, "--no-self", "leave out messages addressed to their own sender")
    option(parser, "--workers K", "processes to explore with", type=positive, default=1)
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
        offered = ", ".join(sorted(facts.assumes.casts))
        raise LocalProtocolError(f"{arguments.protocol} offers {offered}, not {casts}")
    if facts.assumes.fifo_links and not arguments.fifo:
        raise LocalProtocolError(f"{arguments.protocol} needs FIFO links; add --fifo")
    order = Order(arguments.order) if arguments.order else facts.order
    make: str | Factory = arguments.protocol
    processes, routers, terrain = arguments.processes or PROCESSES, 0, arguments.topology
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
            **given(arguments, "fifo workers"),
            self_addressed=not arguments.no_self,
            casts=casts,
            order=order,
            renamed=terrain is not None,
            routers=routers,
            progress=advance,
        )

    def document() -> dict[str, Any]:
        return _as_json(arguments, processes, casts, order, result)

    print_answer(arguments, document, _lines(order, result))
    return ExitCode.VIOLATED if result.violations else ExitCode.HOLDS


def _run_tracker(arguments: argparse.Namespace) -> int:
    name, facts = arguments.protocol, tracking.facts_of(arguments.protocol)
    arguments.processes = arguments.processes or PROCESSES
    tracking.create(name, 0, arguments.processes)  # which refuses a wrong bound
    reason = f"is for ordering protocols, and {name} is a tracker"
    refuse_given(arguments, ("casts", "order", "topology"), reason)
    if facts.fifo_links and not arguments.fifo:
        raise LocalProtocolError(f"{name} needs FIFO links; add --fifo")
    sizes = given(arguments, "processes messages fifo") | {"relevant": arguments.relevant_events}
    result = explore_tracking(name, **sizes, bound=tracking.bound_of(name))
    found = {"states": result.states, "transitions": result.transitions, "sends_refused": result.refused}
    violations = [{"reason": each.reason, "schedule": each.schedule} for each in result.violations]
    lines = [f"{title.replace('_', ' '):<14} {count:>12,}" for title, count in found.items()]
    lines.append(f"{'timestamps':<14} {'WRONG' if violations else 'exact':>12}")
    for violation in result.violations:
        lines += [f"\n{violation.reason}", *_steps(violation.schedule)]
    document = {"protocol": name, **sizes, **found, "violations": violations}
    print_answer(arguments, lambda: document, lines)
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
    routers = len(terrain.names) - terrain.applications
    return terrain.factory(arguments.protocol), terrain.applications, routers


def _as_json(
    arguments: argparse.Namespace, processes: int, casts: str, order: str, result: Exploration
) -> dict[str, Any]:
    return {
        **given(arguments, "protocol messages fifo"),
        "processes": processes,
        "casts": casts,
        "order": order,
        "self_addressed": not arguments.no_self,
        **{name: getattr(result, name) for name in COUNTS},
        "programs_violating": result.counts(),
        "violations": [
            {"kind": v.kind, "program": str(v.program), "reason": v.reason, "schedule": v.schedule}
            for v in result.violations
        ],
    }


def _lines(order: str, result: Exploration) -> Iterator[str]:
    yield f"{'order':<12} {order:>12}"
    for name in COUNTS:
        yield f"{name:<12} {getattr(result, name):>12,}"
    promises = {kind: "no exception" if kind == "error" else kind for kind in result.counts()}
    for kind, count in result.counts().items():
        verdict = f"violated by {count:,} programs" if count else "holds"
        yield f"{promises[kind]:<12} {verdict:>12}"
    for kind, promise in promises.items():
        shortest = next((violation for violation in result.violations if violation.kind == kind), None)
        if shortest is not None:
            yield f"\n{promise} violated: {shortest.reason}"
            yield f"  program {shortest.program}"
            yield from _steps(shortest.schedule)


def _steps(schedule: Iterable[str]) -> Iterator[str]:
    yield from (f"  {place:>3}. {line}" for place, line in enumerate(schedule, 1))
