"""`happened topology`: communication graphs, their separators, and the routes that follow from them.

show and separators refuse an invalid topology (exit 2); check prints all that is wrong with it (exit 1).
"""

import argparse
import secrets
from collections.abc import Iterable, Iterator
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..core.errors import CausalityError
from ..core.exit_codes import ExitCode
from .options import option
from .parser import Command, Parser, add_command
from .terminal import local_path, print_answer, print_json, progress

if TYPE_CHECKING:
    from ..experiments.separator_study import CaseResult
    from ..topology import NamedSeparator, RoutingPlan, Topology

DESCRIPTION = """\
Look at a communication graph: who is linked with whom, which zones it has, which sets of processes separate
the rest into parts, and the one tree on which messages are routed, so that order on every hop is order
between application messages.
"""
EPILOG = """\
examples:
  happened topology show examples/topologies/departments.yaml --svg departments.svg
  happened topology separators examples/topologies/two-gateways.yaml --json
  happened topology check mine.yaml
  happened topology deploy mine.yaml --out site       then happened node --config site/NAME.toml, for each
  happened topology cost mine.yaml --traffic run      what ks and the relaying protocols would carry there
  happened topology separators run                    who sent to whom in a recorded trace
  happened topology suggest run --out zones.yaml      zones and gateways for the traffic of a trace
  happened topology last-to-fail lx1.journal lx2.journal     whose journal to start from, if all have failed
  happened topology study --messages 10000 --seed 1   the networks of Rodrigues & Veríssimo (1995)

FILE is YAML (.yaml, .yml), GraphML (.graphml, .xml), or a trace; docs/topology.md has the format.

exit codes: 0 holds, 1 the file claims what is not so (check), 2 bad usage or input
"""


FORMS = {
    "deploy": Command("topology_deploy", "write a configuration for every process"),
    "cost": Command("topology_cost", "what protocols would carry, keep and delay there"),
    "suggest": Command("topology_suggest", "propose zones and gateways for the traffic of a trace"),
    "last-to-fail": Command(
        "topology_last", "whose journal to start from, if all members of a separator have failed"
    ),
}


def add_arguments(parser: Parser) -> None:
    forms = parser.add_subparsers(title="forms", metavar="FORM", required=True)
    show = _form(forms, "show", "zones, the tree of routes, and separators", _show)
    show.add_argument(
        "--svg", type=local_path, metavar="FILE", help="draw the graph, its zones and separators there"
    )
    show.add_argument("--graphml", type=local_path, metavar="FILE", help="write it as GraphML there")
    _form(forms, "separators", "every separator found, and what it separates", _separators)
    _form(forms, "check", "judge what a file claims: all problems, or what holds", _check)
    for name, form in FORMS.items():
        add_command(forms, name, form.help, import_module(f".{form.module}", __package__))
    study = _form(
        forms, "study", "timestamps with and without separators, beside the published", _study, file=False
    )
    option(study, "--messages", "in each run", default=10_000)
    option(study, "--seed", "without it drawn, and printed")


def _form(forms: Any, name: str, what: str, act: Any, *, file: bool = True) -> Parser:
    parser: Parser = forms.add_parser(name, help=what, description=what[0].upper() + what[1:])
    if file:
        parser.add_argument("path", type=local_path, metavar="FILE", help="YAML, GraphML, or a trace")
    option(parser, "--json")
    parser.set_defaults(run=act)
    return parser


def _read(path: Path) -> "Topology":
    from .. import topology, trace
    from ..trace.location import is_json
    from ..trace.traffic import traffic

    if path.suffix.lower() in topology.READERS:
        return topology.read(path)
    if not path.exists():
        raise topology.TopologyError(f"{path}: no such file; give {', '.join(topology.READERS)}, or a trace")
    if path.is_file() and not (is_json(path) or path.suffix == ".parquet"):
        raise topology.TopologyError(
            f"{path}: neither a topology nor a trace; give {', '.join(topology.READERS)}, or a trace"
        )
    pairs = traffic(trace.read(path))
    if not pairs:
        raise topology.TopologyError(f"{path}: no process sends to another in this trace")
    return topology.from_traffic((sender, [to]) for sender, to in pairs)


def _load(path: Path) -> "Topology":
    from ..topology import refuse

    found = _read(path)
    refuse(found, str(path))
    return found


def _show(arguments: argparse.Namespace) -> int:
    from ..topology import derive, write_graphml

    topology = _load(arguments.path)
    routes = derive(topology)
    separators = _filters(topology, routes)
    for out, write in (
        (arguments.svg, lambda out: out.write_text(_svg(topology, separators, routes), encoding="utf-8")),
        (arguments.graphml, lambda out: write_graphml(topology, out)),
    ):
        if out is not None:
            _write(out, write)
    print_answer(
        arguments,
        lambda: _document(arguments.path, topology, separators, routes),
        _picture(arguments.path, topology, separators, routes),
    )
    return ExitCode.HOLDS


def _filters(topology: "Topology", routes: "RoutingPlan") -> "list[NamedSeparator]":
    """Where routers filter: first the separators known from the graph, with the reasons, then cuts by routes
    alone."""
    from ..topology import reasons

    left = {frozenset(separator.members): separator for separator in routes.filters}
    known = []
    for members, why in reasons(topology).items():
        if (found := left.pop(frozenset(members), None)) is not None:
            known.append(replace(found, members=members, why=tuple(why)))
    return [*known, *left.values()]


def _write(out: Path, write: Any) -> None:
    try:
        write(out)
    except OSError as error:
        raise CausalityError(f"{out}: cannot be written: {error.strerror or error}") from error


def _separators(arguments: argparse.Namespace) -> int:
    from ..topology import every, useful

    topology = _load(arguments.path)
    filtering = {frozenset(separator.members) for separator in useful(topology)}
    found = every(topology)
    if arguments.json:
        listed = [_as_json(s) | {"useful": frozenset(s.members) in filtering} for s in found]
        print_json({"path": str(arguments.path), "separators": listed})
        return ExitCode.HOLDS
    if not found:
        print("no separator: everybody is linked with everybody")
    for separator in found:
        mark = "*" if frozenset(separator.members) in filtering else " "
        print(f"{mark} {_listed(separator.members)}  {', '.join(separator.why)}")
        for part in separator.parts:
            print(f"      {len(part):>5}  {_listed(name for name in topology.graph if name in part)}")
    if found:
        print(
            "\n* worth filtering at: claimed, boundary of at most two, or articulation point\n"
            "  Routes have cuts of their own, at which routers filter as well: see `show`"
        )
    return ExitCode.HOLDS


def _check(arguments: argparse.Namespace) -> int:
    from ..topology import derive, problems, single_points

    topology = _read(arguments.path)
    found = problems(topology)
    if arguments.json:
        alone = single_points(topology) if not found else {}
        told = {"path": str(arguments.path), "holds": not found, "problems": found}
        print_json(told | {"single_points_of_failure": alone})
    elif found:
        print(f"{arguments.path}: {len(found)} problem{'s' * (len(found) > 1)}")
        print("\n".join(f"  {problem}" for problem in found))
    else:
        print("\n".join(_holds(arguments.path, topology, derive(topology))))
    return ExitCode.VIOLATED if found else ExitCode.HOLDS


def _holds(path: Path, topology: "Topology", routes: "RoutingPlan") -> Iterator[str]:
    from ..topology import single_points
    from ..topology.checks import listing

    yield f"{path} holds"
    yield f"  connected   {_counts(topology)}"
    if topology.zones:
        yield f"  zones       {len(topology.zones)}, nobody in two of them, each behind its gateways"
    if topology.groups:
        yield f"  groups      {len(topology.groups)}, all of known processes"
    if topology.separators:
        yield f"  separators  {', '.join(map(_listed, topology.separators))} as claimed"
    yield f"  routes      one tree of {len(routes.blocks)} blocks"
    for forwarder, witnesses in routes.witnesses.items():
        yield f"              {forwarder} forwards, {_listed(witnesses)} can step in"
    for members in routes.unwitnessed:
        yield f"              nobody can step in for a member of {_listed(members)}: their links differ"
    if alone := single_points(topology):
        yield f"  fragile     {len(alone)} single point{'s' * (len(alone) > 1)} of failure, which part"
        for name, cut in alone.items():
            yield f"              {name}: {' | '.join(map(listing, cut))}"


def _study(arguments: argparse.Namespace) -> int:
    from ..experiments.separator_study import cases, study

    seed = secrets.randbits(32) if arguments.seed is None else arguments.seed
    chosen = cases()
    with progress("simulating", arguments.messages * len(chosen), "messages") as bar:
        rows = list(study(chosen, messages=arguments.messages, seed=seed, progress=bar.update))
    if arguments.json:
        print_json(
            {"seed": seed, "messages": arguments.messages, "rows": [_row_as_json(row) for row in rows]}
        )
    else:
        print(f"seed {seed}, {arguments.messages:,} messages a run; entries per timestamp, and per history\n")
        print("\n".join(_table(rows)))
    return ExitCode.HOLDS


def _table(rows: "list[CaseResult]") -> Iterator[str]:
    from ..experiments.separator_study import baselines

    form = "{:<11} {:<15} {:<3} {:<27} {:>6} {:>6} {:>9}  {}".format
    yield form("", "", "R7", "filtering at", "paper", "here", "per copy", "histories")
    for network, what, paper, entries in baselines():
        yield form("Table 7.1", network, "", f"({what})", paper, entries, "", "").rstrip()
    for row in rows:
        case = row.case
        where = " ".join(map(_listed, case.filter_at)) or "nowhere"
        redundancy = "on" if case.timestamp_redundancy else "off"
        histories = "  ".join(f"{name} {mean:.1f}" for name, mean in row.histories.items())
        means = f"{row.entries:.2f}", f"{row.entries_sent:.2f}"
        yield form(case.study, case.network, redundancy, where, case.paper or "–", *means, histories)


def _row_as_json(row: "CaseResult") -> dict[str, Any]:
    case = row.case
    return {
        "study": case.study,
        "network": case.network,
        "processes": case.processes,
        "timestamp_redundancy": case.timestamp_redundancy,
        "filter_at": [list(members) for members in case.filter_at],
        "group": case.group,
        "paper": case.paper or None,
        "entries": row.entries,
        "timestamps": row.timestamps,
        "entries_sent": row.entries_sent,
        "histories": row.histories,
    }


def _counts(topology: "Topology") -> str:
    counted = (
        (len(topology.applications), "process", "es"),
        (len(topology.routers), "router", "s"),
        (topology.graph.number_of_edges(), "link", "s"),
        (len(topology.zones), "zone", "s"),
        (len(topology.groups), "group", "s"),
    )
    return ", ".join(f"{n:,} {name}{plural * (n != 1)}" for n, name, plural in counted if n)


def _picture(
    path: Path, topology: "Topology", separators: "list[NamedSeparator]", routes: "RoutingPlan"
) -> Iterator[str]:
    from ..report.graphs import tree_text

    yield f"{path}: {_counts(topology)}"
    if topology.zones:
        yield "\nzones"
        yield from _zones(topology, None, "  ")
    if topology.groups:
        yield "\ngroups"
        yield from (f"  {name}: {' '.join(members)}" for name, members in topology.groups.items())
    labels = _labels(separators)
    watching = {name for names in routes.witnesses.values() for name in names}

    def written(name: str) -> str:
        kind = f"[{name}]" if name in topology.routers else name
        label = f"  {labels[name]}" if name in labels else ""
        return kind + label + ("  witness" if name in watching else "")

    children: dict[str, list[str]] = {}
    for block in routes.blocks:
        children.setdefault(block[0], []).extend(block[1:])
    yield "\nroutes: one tree ([router]; S… the separators it belongs to)"
    yield from (f"  {line}" for line in tree_text(routes.root, children, written))
    off = [f"{a} – {b}" for a, b in topology.graph.edges if frozenset((a, b)) not in routes.links]
    if off:
        yield f"  besides, linked: {', '.join(off[:12])}" + (
            f", … {len(off) - 12} more" if len(off) > 12 else ""
        )
    networks = [block for block in routes.blocks if len(block) > 2]
    if networks:
        yield f"  broadcast networks: {' '.join(map(_listed, networks))}"
    yield "\nseparators to filter at"
    yield from (f"  {line}" for line in _notes(topology, separators) or ("none",))


def _zones(topology: "Topology", parent: str | None, indent: str) -> Iterator[str]:
    for zone in topology.zones.values():
        if zone.parent == parent:
            by = f"  by {', '.join(zone.gateways)}" if zone.gateways else ""
            yield f"{indent}{zone.name}{by}" + (f": {' '.join(zone.members)}" if zone.members else "")
            yield from _zones(topology, zone.name, indent + "  ")


def _labels(separators: "list[NamedSeparator]") -> dict[str, str]:
    labels: dict[str, str] = {}
    for i, separator in enumerate(separators, start=1):
        for name in separator.members:
            labels[name] = f"{labels[name]} S{i}" if name in labels else f"S{i}"
    return labels


def _notes(topology: "Topology", separators: "list[NamedSeparator]") -> list[str]:
    from ..topology.checks import listing

    return [
        f"S{i} {_listed(s.members)}  {', '.join(s.why)}: "
        + " | ".join(listing(name for name in topology.graph if name in part) for part in s.parts)
        for i, s in enumerate(separators, start=1)
    ]


def _svg(topology: "Topology", separators: "list[NamedSeparator]", routes: "RoutingPlan") -> str:
    from ..report.graphs import GraphEdge, Region, Vertex, graph_svg
    from ..topology.layout import lay_out

    layout, labels = lay_out(topology), _labels(separators)
    return graph_svg(
        [Vertex(n, *layout.points[n], n in topology.routers, labels.get(n, "")) for n in topology.graph],
        [GraphEdge(a, b, frozenset((a, b)) in routes.links) for a, b in topology.graph.edges],
        [Region(box.zone, box.x, box.y, box.width, box.height) for box in layout.boxes],
        _notes(topology, separators),
    )


def _document(
    path: Path, topology: "Topology", separators: "list[NamedSeparator]", routes: "RoutingPlan"
) -> dict[str, Any]:
    from ..topology import to_document

    return {
        "path": str(path),
        "topology": to_document(topology),
        "separators": [_as_json(separator) for separator in separators],
        "routes": {
            "root": routes.root,
            "blocks": [list(block) for block in routes.blocks],
            "witnesses": {name: list(names) for name, names in routes.witnesses.items()},
            "unwitnessed": [list(members) for members in routes.unwitnessed],
        },
    }


def _as_json(separator: "NamedSeparator") -> dict[str, Any]:
    return {
        "members": list(separator.members),
        "why": list(separator.why),
        "parts": [sorted(part) for part in separator.parts],
    }


def _listed(names: Iterable[str]) -> str:
    return "{" + ", ".join(names) + "}"
