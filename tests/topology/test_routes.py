"""Routes: one hypertree whatever the graph, one forwarder per separator, application messages in order."""

from itertools import combinations

import networkx as nx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from happened import causality, trace
from happened.core.destinations import pack, unpack
from happened.core.places import Branch, Place, in_use, outgoing
from happened.ordering import Relays, able, create, protocols
from happened.ordering.capabilities import ReplacesForwarder
from happened.sim.network import Network, parse_delay
from happened.sim.recorder import RunRecorder
from happened.sim.simulation import Simulation
from happened.sim.workload import Workload
from happened.topology import Topology, TopologyError, derive, from_document, useful, verify
from happened.topology.separators import is_separator, parts, shared
from happened.trace import TraceWriter
from oracles.succession import admit, succeed


@st.composite
def topologies(draw, most=9):
    """Connected graphs, sparse to complete, with separators claimed at random."""
    n = draw(st.integers(1, most))
    names = [f"v{i}" for i in range(n)]
    graph = nx.Graph()
    graph.add_nodes_from(names)
    graph.add_edges_from((names[draw(st.integers(0, i - 1))], names[i]) for i in range(1, n))
    graph.add_edges_from(
        draw(st.lists(st.sampled_from(list(combinations(names, 2)) or [None]), max_size=12)) if n > 1 else ()
    )
    claimed = draw(
        st.lists(st.lists(st.sampled_from(names), min_size=1, max_size=3, unique=True), max_size=4)
    )
    return Topology(graph, separators=tuple(tuple(c) for c in claimed if is_separator(graph, c)))


def flood(places, sender):
    """Send to everybody by the rule of the machines; who sent to whom, and who took note."""
    hops, notes, waiting = [], [], [(sender, None)]
    while waiting:
        here, came_from = waiting.pop()
        branches = places[here].branches
        block = next((b.block for b in branches if b.towards == came_from), None)
        for branch in branches:
            if branch.block != block:
                hops.append((here, branch.towards))
                notes += [(here, branch.towards, witness) for witness in unpack(branch.copies)]
                waiting.append((branch.towards, here))
                assert len(hops) < len(places) ** 2, "goes round in circles"
    return hops, notes


@given(topologies(), st.booleans())
def test_everybody_gets_everything_once_over_links(topology, report):
    routes = derive(topology, report=report)
    graph, places, names = topology.graph, routes.places, routes.names
    assert set(names) == set(graph)
    witnesses = {name for watching in routes.witnesses.values() for name in watching}
    for sender in range(len(places)):
        hops, notes = flood(places, sender)
        assert sorted(to for _, to in hops) == [p for p in range(len(places)) if p != sender]
        assert all(graph.has_edge(names[a], names[b]) for a, b in hops)
        for a, b in hops:
            told = {w for here, towards, w in notes if (here, towards) == (a, b)}
            assert {names[w] for w in told} == set(routes.witnesses.get(names[b], ())) - {names[a]}
            assert all(graph.has_edge(names[a], names[w]) for w in told)
            assert a == sender or names[a] not in witnesses


@given(topologies())
def test_ways_are_the_same_in_both_directions_and_meet_in_a_tree(topology):
    routes = derive(topology)
    incidence = nx.Graph()
    for i, block in enumerate(routes.blocks):
        incidence.add_edges_from((i, name) for name in block)
        assert all(topology.graph.has_edge(*pair) for pair in combinations(block, 2))
    assert len(topology.graph) == 1 or nx.is_tree(incidence)
    for a, b in combinations(routes.names, 2):
        assert routes.path(a, b) == routes.path(b, a)[::-1]


@given(topologies())
def test_each_separator_has_one_forwarder_or_is_said_to_have_no_witness(topology):
    routes = derive(topology)
    forwarding = {
        routes.names[a] for s in range(len(routes.places)) for a, _ in flood(routes.places, s)[0] if a != s
    }
    assert {frozenset(s.members) for s in useful(topology) if len(s.members) > 1} == {
        frozenset(members) for members in shared(topology)
    }
    for listed in shared(topology):
        members = set(listed)
        if listed not in routes.unwitnessed:
            active = [name for name in listed if members - {name} <= set(routes.witnesses.get(name, ()))]
            assert len(active) == 1 and forwarding & members <= set(active)
    for forwarder, watching in routes.witnesses.items():
        place = routes.places[routes.names.index(forwarder)]
        assert {routes.names[w] for w in unpack(place.witnesses)} == set(watching)
        for name in watching:
            watches = routes.places[routes.names.index(name)].watches
            assert (routes.names.index(forwarder), place.branches) in watches


def links_in_use(routes):
    """The graph of the links that some message or copy takes, by sending from everybody to everybody."""
    used = nx.Graph()
    used.add_nodes_from(routes.names)
    for sender in range(len(routes.places)):
        hops, notes = flood(routes.places, sender)
        taken = [*hops, *((a, w) for a, _, w in notes)]
        for a, _ in hops:
            taken += [(a, w) for w in unpack(routes.places[a].witnesses)]
        used.add_edges_from((routes.names[a], routes.names[b]) for a, b in taken)
    return used


@given(topologies(), st.booleans())
def test_routers_filter_at_the_cuts_of_the_links_in_use_and_at_known_separators(topology, report):
    assert_filters(topology, derive(topology, report=report))


def assert_filters(topology, routes):
    used = links_in_use(routes)
    groups = [(name, *routes.witnesses.get(name, ())) for name in routes.names]
    wanted = {frozenset(s) for s in (*groups, *shared(topology)) if is_separator(used, s)}
    assert {frozenset(separator.members) for separator in useful(topology)} <= wanted
    for name, place in zip(routes.names, routes.places, strict=True):
        filters = {frozenset(called(routes.names, cut.members)): cut.components for cut in place.separators}
        assert len(filters) == len(place.separators)
        assert filters.keys() == {members for members in wanted if name in members}
        for members, components in filters.items():
            sides = {frozenset(called(routes.names, side)) for side in components}
            assert sides == set(parts(used, members)) and len(sides) == len(components)
    assert {frozenset(s.members): set(s.parts) for s in routes.filters} == {
        members: set(parts(used, members)) for members in wanted
    }


@given(topologies())
def test_the_links_in_use_follow_from_each_place_by_itself(topology):
    assert_links(derive(topology))


def assert_links(routes):
    used = links_in_use(routes)
    for name, place in zip(routes.names, routes.places, strict=True):
        assert called(routes.names, in_use(place)) == set(used[name])


@pytest.mark.parametrize(
    "protocol", [name for name, facts in protocols().items() if facts.copies.relays is Relays.ROUTERS]
)
@given(topologies(), st.data())
def test_the_links_that_a_multicast_uses_follow_from_its_place(protocol, topology, data):
    """Witnesses get nothing from protocols that have none: what is told of them is too much there."""
    places = derive(topology).places
    n = len(places)
    for me, place in enumerate(places):
        dests = data.draw(st.integers(1, (1 << n) - 1), label=f"to whom {me} sends")
        machine = create(protocol, me, n, place=place)
        used = pack(
            {effect.to for effect in machine.multicast(unpack(dests), b"").effects if hasattr(effect, "to")}
        )
        told = outgoing(place, me, dests)
        assert not used & ~told and not told & ~used & ~(place.witnesses | pack_copies(place))
        if protocol in able(ReplacesForwarder):
            assert used == told


def pack_copies(place):
    copies = 0
    for branch in place.branches:
        copies |= branch.copies
    return copies


TWO_GATEWAYS = {
    "zones": {
        "west": {"gateways": ["d1", "d2"], "zones": {"n1": ["p1"], "n2": ["p2", "p3", "p4"]}},
        "east": {"gateways": ["d3"], "zones": {"n3": ["p5", "p6"]}},
    }
}


def test_two_gateways():
    routes = derive(from_document(TWO_GATEWAYS))
    assert routes.path("p1", "p6") == ["p1", "n1", "d1", "d3", "n3", "p6"]
    assert routes.witnesses == {"d1": ("d2",)} and not routes.unwitnessed
    assert_links(routes)


def test_the_first_gateway_forwards():
    zones = TWO_GATEWAYS["zones"]
    turned = {"zones": zones | {"west": zones["west"] | {"gateways": ["d2", "d1"]}}}
    assert derive(from_document(turned)).witnesses == {"d2": ("d1",)}


def test_a_gateway_that_cannot_hear_all_is_no_witness():
    document = {
        "zones": {"west": {"gateways": ["d1", "d2"], "processes": ["a", "b"]}},
        "processes": ["x"],
        "links": [["d2", "x"]],
    }
    routes = derive(from_document(document))
    assert routes.unwitnessed == (("d1", "d2"),), "x cannot tell d1 what it tells d2"
    assert routes.path("a", "x") == ["a", "d2", "x"]


def test_witnesses_need_the_links_of_their_forwarder():
    ring = {"processes": list("abcdef"), "separators": [["a", "d"]]}
    ring["links"] = [[a, b] for a, b in zip("abcdef", "bcdefa", strict=True)]
    routes = derive(from_document(ring))
    assert routes.unwitnessed == (("a", "d"),) and not routes.witnesses
    filtering = {frozenset(separator.members) for separator in routes.filters}
    assert frozenset("ad") in filtering, "it filters all the same"
    assert filtering == {frozenset("ad"), *(frozenset(b[0]) for b in routes.blocks)}, "as do all who forward"


def test_a_witness_can_watch_two_forwarders_and_forwards_for_nobody():
    links = [
        ["a", "b", "c"],
        ["x", "a"],
        ["x", "b"],
        ["x", "c"],
        ["y", "a"],
        ["y", "b"],
        ["z", "b"],
        ["z", "c"],
    ]
    document = {"processes": list("abcxyz"), "links": links, "separators": [["a", "b"], ["b", "c"]]}
    routes = derive(from_document(document))
    assert routes.witnesses == {"a": ("b",), "c": ("b",)}
    assert len(routes.places[1].watches) == 2 and not routes.unwitnessed
    assert_filters(from_document(document), routes)


def test_a_witness_of_two_forwarders_connects_what_a_router_between_them_parts():
    """a and c forward on either side of m, and b is a witness of both: without m, b still leads across."""
    links = [["a", "b"], ["c", "b"], ["m", "a"], ["m", "b"], ["m", "c"]]
    links += [["x", "a"], ["x", "b"], ["y", "c"], ["y", "b"]]
    document = {"processes": list("abcmxy"), "links": links, "separators": [["a", "b"], ["c", "b"]]}
    topology = from_document(document)
    routes = derive(topology)
    assert routes.witnesses == {"a": ("b",), "c": ("b",)}
    assert routes.path("x", "y") == ["x", "a", "m", "c", "y"]
    assert_filters(topology, routes)
    assert_links(routes)
    assert ("m",) not in {separator.members for separator in routes.filters}


def test_a_broadcast_network_stays_whole():
    lan = {
        "zones": {"z": {"processes": ["a", "b", "c"], "gateways": ["g"], "links": "all"}},
        "processes": ["x"],
    }
    routes = derive(from_document(lan))
    assert routes.path("a", "c") == ["a", "c"] and routes.path("a", "x") == ["a", "g", "x"]
    assert {frozenset(block) for block in routes.blocks} == {frozenset("abcg"), frozenset("gx")}


def test_three_gateways_have_one_forwarder_and_filter_together():
    north = {"gateways": ["e1", "e2", "e3"], "processes": ["a", "b"]}
    topology = from_document({"zones": {"north": north}, "processes": ["x"]})
    routes = derive(topology)
    assert routes.witnesses == {"e1": ("e2", "e3")}
    for filter_at in (None, [["e1", "e2", "e3"]]):
        (filters,) = derive(topology, filter_at=filter_at).filters
        assert filters.members == ("e1", "e2", "e3") and set(filters.parts) == set(map(frozenset, "abx"))


def test_a_separator_without_witnesses_is_told_once():
    north = {"gateways": ["e1", "e2", "e3"], "processes": ["a", "b"]}
    claims = {"processes": ["x"], "links": [["e1", "x"]], "separators": [["e1", "e2", "e3"]]}
    assert derive(from_document({"zones": {"north": north}} | claims)).unwitnessed == (("e1", "e2", "e3"),)


def test_filters_can_be_chosen_among_known_separators():
    topology = from_document(TWO_GATEWAYS)
    routes = derive(topology, filter_at=[["d3"]])
    assert {name for name, place in zip(routes.names, routes.places, strict=True) if place.separators} == {
        "d3"
    }
    with pytest.raises(TopologyError, match=r"{p1} is no separator known here"):
        derive(topology, filter_at=[["p1"]])


def test_a_disconnected_graph_has_no_routes():
    graph = nx.Graph([("a", "b"), ("c", "d")])
    with pytest.raises(TopologyError, match="connected"):
        derive(Topology(graph))


def test_routes_that_do_not_fit_together_are_found(dice):
    """Change one branch of one place in any way: a hypertree has no two forms that differ so little."""
    topology = from_document(TWO_GATEWAYS)
    routes = derive(topology)
    n, found = len(routes.places), 0
    for _ in range(300):
        me = dice.randrange(n)
        place = routes.places[me]
        branches = list(place.branches)
        i = dice.randrange(len(branches))
        change = dice.choice(["drop", "behind", "towards", "block"])
        if change == "drop":
            del branches[i]
        elif change == "behind":
            branches[i] = branches[i]._replace(behind=branches[i].behind ^ 1 << dice.randrange(n))
        elif change == "towards":
            branches[i] = branches[i]._replace(towards=dice.choice(list(unpack(place.neighbours))))
        else:
            branches[i] = branches[i]._replace(block=dice.choice(branches).block)
        if branches == list(place.branches):
            continue
        found += 1
        places = [*routes.places[:me], place._replace(branches=tuple(branches)), *routes.places[me + 1 :]]
        with pytest.raises(Exception, match=r"routes do not fit together|process"):
            verify(topology.graph, places)
    assert found > 100


class Counted(tuple):
    """Branches that count how often one of them is looked at."""

    looked = 0

    def __iter__(self):
        for branch in super().__iter__():
            Counted.looked += 1
            yield branch


def test_a_clique_is_verified_in_a_time_like_its_links():
    for n in (20, 40):
        topology = Topology(nx.relabel_nodes(nx.complete_graph(n), str))
        places = [place._replace(branches=Counted(place.branches)) for place in derive(topology).places]
        Counted.looked = 0
        verify(topology.graph, places)
        assert n * n < Counted.looked + n < 10 * n * n


@given(topologies(), st.randoms(use_true_random=False))
def test_names_in_another_order_and_of_those_who_left_make_the_same_routes(topology, dice):
    plain = derive(topology)
    names = [*plain.names, "left1", "left2"]
    dice.shuffle(names)
    routes = derive(topology, names=names)
    assert routes.names == tuple(names) and routes.blocks == plain.blocks
    for name, place in zip(names, routes.places, strict=True):
        if name.startswith("left"):
            assert place == Place(0, ())
            continue
        before = plain.places[plain.names.index(name)]
        assert [(names[b.towards], called(names, b.behind)) for b in place.branches] == [
            (plain.names[b.towards], called(plain.names, b.behind)) for b in before.branches
        ]
        assert called(names, place.neighbours) == called(plain.names, before.neighbours)
        for cut, old in zip(place.separators, before.separators, strict=True):
            assert called(names, cut.members) == called(plain.names, old.members)
            assert [called(names, part) for part in cut.components] == [
                *(called(plain.names, part) for part in old.components),
                {"left1", "left2"},
            ]


def called(names, bits):
    return {names[i] for i in unpack(bits)}


@pytest.mark.parametrize("names", [("a", "b"), ("a", "b", "c", "b"), ("a", "b", "x")])
def test_names_of_others_are_refused(names):
    with pytest.raises(TopologyError, match="names are those of all processes"):
        derive(from_document({"processes": ["a", "b", "c"], "links": [["a", "b", "c"]]}), names=names)


def test_who_joined_keeps_its_index_after_a_join_and_after_a_failure():
    """Processes are named before routers: without names=, a process that joins moves all routers up."""
    gates = ["d1", "d2"]

    def world(processes, gateways):
        zones = {name: {"processes": members, "gateways": gateways} for name, members in processes.items()}
        return from_document({"zones": zones})

    routes = derive(world({"x": ["a"], "y": ["b"]}, gates))
    assert routes.names == ("a", "b", *gates)
    machines = {i: create("topological", i, 4, place=place) for i, place in enumerate(routes.places)}
    grown = world({"x": ["a", "c"], "y": ["b"]}, gates)
    assert derive(grown).names != (*routes.names, "c")
    routes = derive(grown, names=(*routes.names, "c"))
    admit(machines, dict(enumerate(routes.places)), create("topological", 4, 5))
    up = {send.to: send.message for send in machines[4].multicast([1], b"x").effects}
    assert list(up) == [2, 3]
    machines[3].receive(up[3])
    routes = derive(world({"x": ["a", "c"], "y": ["b"]}, ["d2"]), names=routes.names)
    after = {i: place for i, place in enumerate(routes.places) if i != 2}
    (send,) = succeed(machines, 2, after, machines[3], witness=machines[3])
    assert send.to == 1 and [d.payload for d in machines[1].receive(send.message)] == [b"x"]


def test_two_trees_are_not_one():
    """Everybody agrees with its neighbours, and nobody leads from one half to the other."""
    graph = nx.path_graph(4)
    places = [Place(pack(graph[me]), (Branch(other, 1 << other),)) for me, other in enumerate((1, 0, 3, 2))]
    with pytest.raises(TopologyError, match="does not reach everybody"):
        verify(graph, places)


SHAPES = {
    "two gateways": from_document(TWO_GATEWAYS),
    "ring": Topology(nx.relabel_nodes(nx.cycle_graph(6), str), separators=(("0", "3"),)),
    "grid": Topology(nx.relabel_nodes(nx.grid_2d_graph(3, 3), str)),
    "broadcast networks": from_document(
        {
            "zones": {
                name: {
                    "gateways": [f"{name}1", f"{name}2"],
                    "processes": [f"{name}a", f"{name}b"],
                    "links": "all",
                }
                for name in ("x", "y", "z")
            }
        }
    ),
}


@pytest.mark.parametrize("topology", SHAPES.values(), ids=SHAPES)
@pytest.mark.parametrize("report", [True, False])
def test_application_messages_are_in_causal_order_on_derived_routes(tmp_path, seed, topology, report):
    places = derive(topology, report=report).places
    with TraceWriter(tmp_path) as writer:
        left = Simulation(
            lambda me, n: create("topological", me, n, place=places[me]),
            len(places),
            600,
            seed=seed,
            workload=Workload(pattern="fanout:3", interval=0.1),
            network=Network(delay=parse_delay("exp:0.2")),
            control_sizes=lambda messages: [0] * len(messages),
            recorder=RunRecorder(writer),
        ).run()
    assert not left
    table = trace.read(tmp_path)
    verdict = causality.check_order(table, "causal")
    assert verdict.holds, verdict.witness
    fates = causality.check_delivery(table)
    assert (fates.messages, fates.lost, fates.duplicated, fates.misdelivered) == (600, 0, 0, 0)
