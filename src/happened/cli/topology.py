"""Look at a communication graph: who is linked with whom, which zones it has, which sets of processes
separate the rest into parts, and the one tree on which messages are routed, so that order on every hop is
order between application messages.
"""

import argparse
import secrets
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..core.errors import CausalityError
from ..core.exit_codes import ExitCode
from .options import local_path, option
from .parser import Command, Parser, add_command, add_forms, add_modules
from .terminal import print_answer, progress

if TYPE_CHECKING:
    from ..experiments.separator_study import CaseResult
    from ..topology import NamedSeparator, RoutingPlan, Topology

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
    "last-to-fail": Command("topology_last", "whose journal to start from if a separator has failed"),
}


def add_arguments(parser: Parser) -> None:
    forms = add_forms(parser)
    for function in (show, separators, check):
        form = add_command(forms, function.__name__, function)
        option(form, "path FILE", "YAML, GraphML, or a trace", type=local_path)
        option(form, "--json")
        if function is show:
            option(form, "--svg FILE", "draw the graph, its zones and separators there", type=local_path)
            option(form, "--graphml FILE", "write it as GraphML there", type=local_path)
    add_modules(forms, FORMS)
    form = add_command(forms, "study", study)
    option(form, "--json")
    option(form, "--messages", "in each run", default=10_000)
    option(form, "--seed", "without it drawn, and printed")


def _read(path: Path) -> "Topology":
    from .. import topology, trace
    from ..trace.location import is_json
    from ..trace.traffic import traffic

    if path.suffix.lower() in topology.READERS:
        return topology.read(path)
    wanted = f"give {', '.join(topology.READERS)}, or a trace"
    if not path.exists():
        raise topology.TopologyError(f"{path}: no such file; {wanted}")
    if path.is_file() and not (is_json(path) or path.suffix == ".parquet"):
        raise topology.TopologyError(f"{path}: neither a topology nor a trace; {wanted}")
    pairs = traffic(trace.read(path))
    if not pairs:
        raise topology.TopologyError(f"{path}: no process sends to another in this trace")
    return topology.from_traffic((sender, [to]) for sender, to in pairs)


def _load(path: Path) -> "Topology":
    from ..topology import refuse

    found = _read(path)
    refuse(found, str(path))
    return found


def show(arguments: argparse.Namespace) -> None:
    """Zones, the tree of routes, and separators."""
    from ..topology import derive, write_graphml

    topology = _load(arguments.path)
    routes = derive(topology)
    filters, out = _filters(topology, routes), None
    try:
        if (out := arguments.svg) is not None:
            out.write_text(_svg(topology, filters, routes), encoding="utf-8")
        if (out := arguments.graphml) is not None:
            write_graphml(topology, out)
    except OSError as error:
        raise CausalityError(f"{out}: cannot be written: {error.strerror or error}") from error
    about = (arguments.path, topology, filters, routes)
    print_answer(arguments, lambda: _document(*about), _picture(*about))


def _filters(topology: "Topology", routes: "RoutingPlan") -> "list[NamedSeparator]":
    """Where routers filter: the separators known from the graph, with reasons, then cuts by routes alone."""
    from ..topology import reasons

    left = {frozenset(separator.members): separator for separator in routes.filters}
    known = []
    for members, why in reasons(topology).items():
        if (found := left.pop(frozenset(members), None)) is not None:
            known.append(replace(found, members=members, why=tuple(why)))
    return [*known, *left.values()]


def separators(arguments: argparse.Namespace) -> None:
    """Every separator found, and what it separates."""
    from ..topology import every, useful

    topology = _load(arguments.path)
    filtering = {frozenset(separator.members) for separator in useful(topology)}
    found = [(separator, frozenset(separator.members) in filtering) for separator in every(topology)]
    listed = [_as_json(separator) | {"useful": is_useful} for separator, is_useful in found]
    document = {"path": str(arguments.path), "separators": listed}
    print_answer(arguments, lambda: document, _separator_lines(topology, found))


def _separator_lines(topology: "Topology", found: "list[tuple[NamedSeparator, bool]]") -> Iterator[str]:
    for separator, is_useful in found:
        yield f"{'*' if is_useful else ' '} {_listed(separator.members)}  {', '.join(separator.why)}"
        for part in separator.parts:
            yield f"      {len(part):>5}  {_listed(name for name in topology.graph if name in part)}"
    if found:
        yield "\n* worth filtering at: claimed, boundary of at most two, or articulation point"
        yield "  Routes have cuts of their own, at which routers filter as well: see `show`"
    else:
        yield "no separator: everybody is linked with everybody"


def check(arguments: argparse.Namespace) -> int:
    """Judge what a file claims: all problems, or what holds."""
    from ..topology import problems, single_points

    topology = _read(arguments.path)
    found = problems(topology)
    alone = single_points(topology) if not found else {}
    told = {"path": str(arguments.path), "holds": not found, "problems": found}
    document = told | {"single_points_of_failure": alone}
    print_answer(arguments, lambda: document, _judged(arguments.path, topology, found, alone))
    return ExitCode.VIOLATED if found else ExitCode.HOLDS


def _judged(path: Path, topology: "Topology", problems: list[str], alone: dict[str, Any]) -> Iterator[str]:
    from ..topology import derive
    from ..topology.checks import listing

    if problems:
        yield f"{path}: {len(problems)} problem{'s' * (len(problems) > 1)}"
        yield from (f"  {problem}" for problem in problems)
        return
    routes = derive(topology)
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
    if alone:
        yield f"  fragile     {len(alone)} single point{'s' * (len(alone) > 1)} of failure, which part"
        for name, cut in alone.items():
            yield f"              {name}: {' | '.join(map(listing, cut))}"


def study(arguments: argparse.Namespace) -> None:
    """Timestamps with and without separators, beside the published."""
    from ..experiments import separator_study

    seed = secrets.randbits(32) if arguments.seed is None else arguments.seed
    messages, cases = arguments.messages, separator_study.cases()
    with progress("simulating", messages * len(cases), "messages") as bar:
        rows = list(separator_study.study(cases, messages=messages, seed=seed, progress=bar.update))
    document = {"seed": seed, "messages": messages, "rows": [_row_as_json(row) for row in rows]}
    print_answer(arguments, lambda: document, _table(rows, messages, seed))


def _table(rows: "list[CaseResult]", messages: int, seed: int) -> Iterator[str]:
    from ..experiments.separator_study import baselines

    yield f"seed {seed}, {messages:,} messages a run; entries per timestamp, and per history\n"
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
    case, told = row.case, row._asdict()
    del told["case"]
    names = ("study", "network", "processes", "timestamp_redundancy", "filter_at", "group")
    return {name: getattr(case, name) for name in names} | {"paper": case.paper or None} | told


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
    from ..report.drawings import tree_text

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
        more = f", … {len(off) - 12} more" if len(off) > 12 else ""
        yield f"  besides, linked: {', '.join(off[:12])}{more}"
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
    from ..report.drawings import GraphEdge, Region, Vertex, graph_svg
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

    names = ("root", "blocks", "witnesses", "unwitnessed")
    return {
        "path": str(path),
        "topology": to_document(topology),
        "separators": [_as_json(separator) for separator in separators],
        "routes": {name: getattr(routes, name) for name in names},
    }


def _as_json(separator: "NamedSeparator") -> dict[str, Any]:
    parts = [sorted(part) for part in separator.parts]
    return {"members": separator.members, "why": separator.why, "parts": parts}


def _listed(names: Iterable[str]) -> str:
    return "{" + ", ".join(names) + "}"
