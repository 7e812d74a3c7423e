"""Topologies from YAML, GraphML, nested lists and traffic; what is none is refused by name and place."""

from pathlib import Path

import networkx as nx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from happened.topology import (
    TopologyError,
    derive,
    from_document,
    from_traffic,
    load,
    problems,
    read,
    to_document,
    write_graphml,
)

EXAMPLES = Path(__file__).parents[2] / "examples" / "topologies"


def links(topology):
    return {frozenset(edge) for edge in topology.graph.edges}


def pairs(*texts):
    return {frozenset(text.split("-")) for text in texts}


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.yaml")), ids=lambda path: path.stem)
def test_every_example_holds_and_can_be_routed(path):
    assert derive(load(path)).places


def test_zones_are_linked_by_their_gateways():
    topology = load(EXAMPLES / "two-gateways.yaml")
    inner = pairs("p1-n1", "p2-n2", "p3-n2", "p4-n2", "p5-n3", "p6-n3", "n3-d3")
    west = pairs("n1-d1", "n1-d2", "n2-d1", "n2-d2", "d1-d2")
    world = pairs("d1-d3", "d2-d3")
    assert links(topology) == inner | west | world
    assert topology.applications == ("p1", "p2", "p3", "p4", "p5", "p6")
    assert topology.routers == {"n1", "n2", "n3", "d1", "d2", "d3"}
    assert topology.inside("west") == {"n1", "n2", "p1", "p2", "p3", "p4"}


def test_given_links_replace_those_by_rule():
    by_rule = {"processes": ["a", "b", "c"]}
    assert links(from_document(by_rule)) == pairs("a-b", "a-c", "b-c")
    assert links(from_document(by_rule | {"links": [["a", "b"], ["b", "c"]]})) == pairs("a-b", "b-c")
    lan = {"zones": {"z": {"processes": ["a", "b"], "gateways": ["g"], "links": "all"}}}
    assert links(from_document(lan)) == pairs("a-b", "a-g", "b-g")


def test_a_gateway_among_the_processes_is_no_router():
    topology = from_document(
        {"processes": ["boss"], "zones": {"z": {"gateways": ["boss"], "processes": ["a"]}}}
    )
    assert topology.applications == ("boss", "a") and not topology.routers and not problems(topology)


def test_gateways_are_linked_with_one_another_and_not_with_themselves():
    inner = {"gateways": ["e1", "e2"], "processes": ["e1", "a"]}
    topology = from_document({"zones": {"site": {"gateways": ["g"], "zones": {"node": inner}}}})
    assert links(topology) == pairs("e1-e2", "e1-a", "e2-a", "e1-g", "e2-g")
    assert topology.inside("node") == {"a"} and not problems(topology)


def test_traffic_makes_a_graph():
    topology = from_traffic([("a", ["b", "c"]), ("c", ["a", "c"]), ("d", ["c"])])
    assert links(topology) == pairs("a-b", "a-c", "c-d") and topology.applications == ("a", "b", "c", "d")


names = st.text(st.characters(categories=["L", "N"]), min_size=1, max_size=3)


@st.composite
def documents(draw):
    """Zones in zones; every process a name of its own, and so every zone."""
    fresh = iter(draw(st.lists(names, min_size=30, max_size=30, unique=True)))

    def zone(depth):
        content = {"processes": [next(fresh) for _ in range(draw(st.integers(1, 2)))]}
        content["gateways"] = [next(fresh) for _ in range(draw(st.integers(1, 2)))]
        if depth:
            content["zones"] = {next(fresh): zone(depth - 1) for _ in range(draw(st.integers(0, 1)))}
        if draw(st.booleans()):
            content["links"] = "all"
        return content

    document = {"zones": {next(fresh): zone(2) for _ in range(draw(st.integers(1, 2)))}}
    processes = from_document(document).applications
    some = st.lists(st.sampled_from(processes), min_size=1, unique=True)
    return document | {"groups": draw(st.dictionaries(names, some, max_size=2))}


@pytest.mark.long
@given(documents())
def test_documents_come_back_from_themselves_and_from_graphml(tmp_path_factory, document):
    topology = from_document(document)
    assert not problems(topology)
    path = tmp_path_factory.mktemp("graphml") / "round.graphml"
    write_graphml(topology, path)
    for again in (from_document(to_document(topology)), load(path)):
        assert set(again.graph) == set(topology.graph) and links(again) == links(topology)
        assert again.routers == topology.routers and again.zones == topology.zones
        assert again.groups == topology.groups and again.separators == topology.separators


def test_graphml_of_other_tools(tmp_path):
    graph = nx.DiGraph([("a", "b"), ("b", "a"), ("b", "c")])
    graph.add_node("a", zone="west", colour="red")
    graph.add_node("b", router=True)
    path = tmp_path / "drawn.graphml"
    nx.write_graphml(graph, path)
    topology = load(path)
    assert links(topology) == pairs("a-b", "b-c") and topology.applications == ("c", "a")
    assert topology.zones["west"].members == ("a",)


def test_labels_of_graphml_are_names(tmp_path):
    """Graph editors number vertices and keep what people call them in a label."""
    graph = nx.Graph([("n0", "n1"), ("n1", "n2")])
    graph.add_node("n0", label="Lisbon")
    graph.add_node("n1", label=" Porto ", router=True)
    path = tmp_path / "drawn.graphml"
    nx.write_graphml(graph, path)
    topology = load(path)
    assert links(topology) == pairs("Lisbon-Porto", "Porto-n2") and topology.routers == {"Porto"}
    again = tmp_path / "again.graphml"
    write_graphml(topology, again)
    assert links(load(again)) == links(topology)


def test_two_vertices_of_one_label_are_refused(tmp_path):
    graph = nx.Graph([("n0", "n1")])
    graph.add_node("n0", label="n1")
    path = tmp_path / "drawn.graphml"
    nx.write_graphml(graph, path)
    with pytest.raises(TopologyError, match="'n0' and 'n1' are both called 'n1'; label them apart"):
        read(path)


REFUSED = {
    "an empty file": ("", "empty"),
    "only a comment": ("# nothing\n", "empty"),
    "no process": ("groups: {}\n", "no process is named"),
    "malformed YAML": ("processes: [a, b\nlinks: x]\n", ":2: not YAML I can read"),
    "a tab": ("processes:\n\t- a\n", ":2: not YAML I can read"),
    "an alias": (
        "processes: &all [a, b]\ngroups: {g: *all}\n",
        ":2: not YAML I can read: aliases are not used",
    ),
    **{
        f"a tag that says {said}": (f"processes: [a]\ngroups: {{g: {said}}}\n", "not YAML I can read")
        for said in (
            '!!int ""',
            "!!bool x",
            "!!timestamp x",
            "!!float x",
            "!!map [a]",
            "!!set [a]",
            "!!omap a",
        )
    },
    "a Python object": ("processes: !!python/object:os.system []\n", ":1: not YAML I can read"),
    "a key given twice": (
        "processes: [a]\nprocesses: [b]\n",
        ":2: not YAML I can read: 'processes' is given twice",
    ),
    "no mapping": ("- a\n- b\n", "needs names and what they stand for"),
    "an unknown key": ("proceses: [a]\n", "no key is called 'proceses' here"),
    "an unknown key in a zone": (
        "zones:\n  z: {processes: [a], groups: {}}\n",
        "zones.z: no key is called 'groups' here; there are: gateways, links, processes, routers, zones",
    ),
    "text for a list": ("processes: a\n", "processes: needs a list of names, not 'a'"),
    "a number for a name": ("processes: [1, b]\n", "processes: a name is text, not 1"),
    "YAML's no": ("processes: [no, yes]\n", "a name is text, not False; put it in quotes"),
    "an empty name": ('processes: [" "]\n', "a name has printable characters"),
    "a name twice in a list": ("processes: [a, b, a]\n", "processes: names 'a' twice"),
    "process and router": (
        "processes: [a, b]\nrouters: [a]\n",
        "'a' is declared as a process and as a router",
    ),
    "two zones of one name": (
        "zones:\n  x: {zones: {z: [a]}}\n  y: {zones: {z: [b]}}\n",
        "zones.y.zones.z: there are two zones called 'z'",
    ),
    "a link to oneself": ("processes: [a, b]\nlinks: [[a, a]]\n", "links[0]: names 'a' twice"),
    "a link of one": ("processes: [a, b]\nlinks: [[a]]\n", "links[0]: needs at least 2 names, not 1"),
    "a link to a stranger": (
        "processes: [a, b]\nlinks: [[a, b], [b, zed]]\n",
        "links[1]: 'zed' is no process",
    ),
    "a word for links": (
        "processes: [a, b]\nlinks: some\n",
        "links: needs a list of links, or the word `all`",
    ),
    "an empty group": ("processes: [a]\ngroups: {g: []}\n", "groups.g: needs at least 1 name, not 0"),
    "too deep": (
        "zones: " + "".join(f"{{z{i}: {{zones: " for i in range(40)) + "{}" + "}}" * 40,
        "more than 32 deep",
    ),
    "far too deep": ("[" * 100_000, "nested too deeply"),
    "too many links": (
        f"processes: [{', '.join(f'p{i}' for i in range(1500))}]\n",
        "more than 1,000,000 links",
    ),
    # What the file says is well said, and not so.
    "a false separator": (
        "processes: [a, b, c, d]\nlinks: [[a, b], [b, c], [c, d], [d, a]]\nseparators: [[a]]\n",
        "{a} is no separator: b – c – d connects past it",
    ),
    "a separator at an end": (
        "processes: [a, b, c]\nlinks: [[a, b], [b, c]]\nseparators: [[a]]\n",
        "{a} is no separator: without it {b, c} is left, in one piece",
    ),
    "a separator of strangers": (
        "processes: [a, b]\nseparators: [[zed]]\n",
        "separator {zed} names {zed}, unknown here",
    ),
    "a leaking zone": (
        "zones:\n  z: {gateways: [g], processes: [a, b]}\nprocesses: [x]\nlinks: [[g, x], [b, x]]\n",
        "zone 'z' is not behind its gateways {g}: b – x goes past them",
    ),
    "a disconnected graph": (
        "processes: [a, b, c, d]\nlinks: [[a, b], [c, d]]\n",
        "the graph is disconnected, in 2 parts: {a, b} | {c, d}",
    ),
    "a process in two zones": ("zones:\n  x: [a, b]\n  y: [b, c]\n", "'b' is in two zones, {x, y}"),
    "a group with a stranger": (
        "processes: [a, b]\ngroups: {team: [a, zed]}\n",
        "group 'team' names {zed}, unknown here",
    ),
    "a group with a router": (
        "zones: {z: [a, b]}\ngroups: {team: [a, z]}\n",
        "group 'team' names {z}, a router",
    ),
}


@pytest.mark.parametrize("text, reason", REFUSED.values(), ids=REFUSED)
def test_what_is_no_topology_is_refused(tmp_path, text, reason):
    path = tmp_path / "mine.yaml"
    path.write_text(text)
    with pytest.raises(TopologyError) as refusal:
        load(path)
    message = str(refusal.value)
    assert message.startswith(str(path)) and reason in message and "\n" not in message


def test_all_problems_are_told_and_a_refusal_counts_them():
    topology = from_document(
        {
            "zones": {"x": ["a", "b"], "y": ["b", "c"]},
            "groups": {"g": ["zed"]},
            "separators": [["a"]],
        }
    )
    found = problems(topology)
    assert [text.split(";")[0] for text in found] == [
        "group 'g' names {zed}, unknown here",
        "'b' is in two zones, {x, y}",
        "zone 'x' is not behind its gateways {x}: b – y goes past them",
        "zone 'y' is not behind its gateways {y}: b – x goes past them",
        "{a} is no separator: without it {b, c, x, y} is left, in one piece",
    ]


@pytest.mark.parametrize(
    "name, content",
    [
        ("cut.graphml", "<graphml><graph>"),
        ("text.graphml", "hello"),
        ("other.xml", "<html/>"),
        ("empty.graphml", ""),
        ("binary.graphml", "\x00\xff"),
        ("latin.yaml", b"processes: [\xe9]"),
        ("kind.txt", "processes: [a]"),
        ("missing.yaml", None),
        ("missing.graphml", None),
    ],
)
def test_files_that_cannot_be_read_are_named(tmp_path, name, content):
    path = tmp_path / name
    if content is not None:
        path.write_bytes(content if isinstance(content, bytes) else content.encode("latin-1"))
    with pytest.raises(TopologyError, match=name):
        read(path)


@pytest.mark.parametrize(
    "structure, reason",
    [
        ("{", "not JSON"),
        ("[]", "needs an object"),
        ('{"processes": ["a"]}', "'b' is no process of this file"),
        ('{"processes": ["a", "b"]}', "leaves out 'c'"),
    ],
)
def test_graphml_whose_structure_does_not_fit_is_refused(tmp_path, structure, reason):
    graph = nx.Graph([("a", "b")], structure=structure)
    graph.add_node("c")
    path = tmp_path / "odd.graphml"
    nx.write_graphml(graph, path)
    with pytest.raises(TopologyError, match=reason):
        read(path)


def test_graphml_with_a_loop_is_refused(tmp_path):
    path = tmp_path / "loop.graphml"
    nx.write_graphml(nx.Graph([("a", "a"), ("a", "b")]), path)
    with pytest.raises(TopologyError, match="linked with itself: 'a'"):
        read(path)
