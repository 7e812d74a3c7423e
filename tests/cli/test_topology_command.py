"""happened topology: exit code, stdout, stderr, and the files it writes."""

import json
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from xml.etree import ElementTree

import pytest

from happened.cli import main

EXAMPLES = Path(__file__).parents[2] / "examples" / "topologies"
TWO_GATEWAYS = EXAMPLES / "two-gateways.yaml"
FALSE_SEPARATOR = "processes: [a, b, c, d]\nlinks: [[a, b], [b, c], [c, d], [d, a]]\nseparators: [[a]]\n"


@pytest.fixture
def topology(capsys):
    def run(*arguments):
        code = main(["topology", *map(str, arguments)])
        return code, *capsys.readouterr()

    return run


@pytest.fixture
def file(tmp_path):
    def write(text, name="mine.yaml"):
        path = tmp_path / name
        path.write_text(text)
        return path

    return write


def test_show_draws_zones_tree_and_separators(topology):
    code, out, err = topology("show", TWO_GATEWAYS)
    assert (code, err) == (0, "")
    assert out.splitlines()[0].endswith("6 processes, 6 routers, 14 links, 5 zones, 4 groups")
    assert "    n2  by n2: p2 p3 p4\n" in out
    assert "  │  ├─ p2\n" in out and "  └─ [d2]  S1  witness\n" in out
    assert "  S1 {d1, d2}  boundary of west: {p1, n1} | {p2, p3, p4, n2} | {p5, p6, d3, n3}\n" in out


def test_show_as_json_is_the_topology_again(topology):
    from happened.topology import from_document, load

    code, out, _ = topology("show", TWO_GATEWAYS, "--json")
    document = json.loads(out)
    assert code == 0 and document["routes"]["witnesses"] == {"d1": ["d2"]}
    again, original = from_document(document["topology"]), load(TWO_GATEWAYS)
    assert {frozenset(e) for e in again.graph.edges} == {frozenset(e) for e in original.graph.edges}
    assert (again.zones, again.groups) == (original.zones, original.groups)


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.yaml")), ids=lambda path: path.stem)
def test_the_picture_has_every_process_link_and_zone(topology, tmp_path, path):
    from happened.topology import load

    picture = tmp_path / "graph.svg"
    assert topology("show", path, "--svg", picture)[0] == 0
    drawn = load(path)
    svg = ElementTree.parse(picture).getroot()
    space = "{http://www.w3.org/2000/svg}"
    texts = [element.text for element in svg.iter(f"{space}text")]
    assert set(drawn.graph) | set(drawn.zones) <= set(texts)
    assert (
        len([e for e in svg.iter() if e.get("class", "").startswith("link")]) == drawn.graph.number_of_edges()
    )
    assert len([e for e in svg.iter(f"{space}rect") if e.get("class") == "vertex"]) == len(drawn.routers)
    assert len([e for e in svg.iter(f"{space}circle") if e.get("class") == "vertex"]) == len(
        drawn.applications
    )
    left, top, width, height = map(float, svg.get("viewBox").split())
    for e in svg.iter(f"{space}circle"):
        assert left < float(e.get("cx")) < left + width and top < float(e.get("cy")) < top + height


def test_a_large_graph_without_zones_is_drawn_on_a_circle(topology, file, tmp_path):
    names = [f"p{i}" for i in range(600)]
    path = file(json.dumps({"processes": names, "links": [list(link) for link in pairwise(names)]}))
    assert topology("show", path, "--svg", tmp_path / "large.svg")[0] == 0
    assert (tmp_path / "large.svg").read_text().count('class="vertex"') == 600


def test_names_cannot_break_out_of_the_picture(topology, file, tmp_path):
    path = file('processes: ["<b>&", "\\"x"]\n')
    assert topology("show", path, "--svg", tmp_path / "odd.svg")[0] == 0
    texts = [element.text for element in ElementTree.parse(tmp_path / "odd.svg").iter() if element.text]
    assert "<b>&" in texts and '"x' in texts


def test_show_writes_graphml_that_can_be_read_again(topology, tmp_path):
    copy = tmp_path / "copy.graphml"
    first = topology("show", TWO_GATEWAYS, "--graphml", copy)
    again = topology("show", copy)
    assert first[0] == again[0] == 0
    assert sorted(first[1].splitlines()[1:]) == sorted(again[1].splitlines()[1:])


def test_separators_say_what_they_part(topology):
    code, out, _ = topology("separators", EXAMPLES / "line.yaml")
    assert code == 0
    assert "* {b}  articulation point, minimum cut\n          1  {a}\n          2  {c, d}\n" in out
    code, out, _ = topology("separators", EXAMPLES / "line.yaml", "--json")
    assert json.loads(out)["separators"][0] == {
        "members": ["b"],
        "why": ["articulation point", "minimum cut"],
        "parts": [["a"], ["c", "d"]],
        "useful": True,
    }


def test_a_complete_graph_has_none(topology, file):
    assert topology("separators", file("processes: [a, b, c]\n"))[1].startswith("no separator")


def test_check_says_what_holds(topology):
    code, out, _ = topology("check", EXAMPLES / "departments.yaml")
    assert code == 0 and "separators  {po}, {lx1, lx2} as claimed" in out
    assert "lx1 forwards, {lx2} can step in" in out


def test_check_tells_all_problems(topology, file):
    path = file("zones:\n  x: [a, b]\n  y: [b, c]\ngroups: {team: [a, zed]}\n")
    code, out, err = topology("check", path)
    assert (code, err) == (1, "")
    assert out.startswith(f"{path}: 4 problems\n") and "{zed}" in out and "'b' is in two zones, {x, y}" in out
    code, out, _ = topology("check", path, "--json")
    assert code == 1 and len(json.loads(out)["problems"]) == 4


@pytest.mark.parametrize("command", ["show", "separators"])
@pytest.mark.parametrize(
    "text, offenders",
    [
        (FALSE_SEPARATOR, "{a} is no separator: b – c – d connects past it"),
        ("processes: [a, b, c]\nlinks: [[a, b]]\n", "disconnected, in 2 parts: {a, b} | {c}"),
        ("zones:\n  x: [a, b]\n  y: [b, c]\n", "'b' is in two zones, {x, y}"),
        ("processes: [a]\ngroups: {team: [a, zed]}\n", "group 'team' names {zed}"),
        ("processes: [a\n", "not YAML"),
        ("", "empty"),
    ],
)
def test_a_file_that_is_not_so_is_refused_with_the_offending_names(topology, file, command, text, offenders):
    path = file(text)
    code, out, err = topology(command, path)
    assert (code, out) == (2, "") and err.startswith(f"happened: {path}") and err.count("\n") == 1
    assert offenders in err


@pytest.mark.parametrize("name, text", [("bad.graphml", "<graphml>"), ("bad.yaml", "a: [")])
def test_check_cannot_judge_what_it_cannot_read(topology, file, name, text):
    code, out, err = topology("check", file(text, name))
    assert (code, out) == (2, "") and name in err


def test_a_trace_shows_who_sends_to_whom(topology, file):
    rows = [
        {"process": "alice", "seq": 1, "kind": "send", "message": "m", "to": ["bob"]},
        {"process": "bob", "seq": 1, "kind": "deliver", "message": "m"},
        {"process": "bob", "seq": 2, "kind": "send", "message": "n", "to": ["carol"]},
        {"process": "carol", "seq": 1, "kind": "receive", "message": "n"},
    ]
    path = file("".join(json.dumps(row) + "\n" for row in rows), "run.jsonl")
    code, out, _ = topology("separators", path)
    assert code == 0 and "* {bob}  articulation point, minimum cut" in out and "{carol}" in out


def test_a_file_of_another_kind_is_refused_with_the_kinds_there_are(topology, file):
    page = file("# Topologies\n", "page.md")
    kinds = "give .yaml, .yml, .graphml, .xml, or a trace"
    assert topology("show", page) == (2, "", f"happened: {page}: neither a topology nor a trace; {kinds}\n")
    lost = page.with_name("lost.yaml")
    reason = "cannot be read: No such file or directory"
    assert topology("show", lost) == (2, "", f"happened: {lost}: {reason}\n")


def test_a_trace_without_messages_is_refused(topology, file):
    path = file(json.dumps({"process": "alice", "seq": 1, "kind": "internal"}) + "\n", "quiet.jsonl")
    code, _, err = topology("show", path)
    assert code == 2 and "no process sends to another" in err
    assert topology("check", path)[0] == 2


def test_a_picture_that_cannot_be_written_is_an_error(topology, tmp_path):
    code, _, err = topology("show", TWO_GATEWAYS, "--svg", tmp_path / "no" / "graph.svg")
    assert code == 2 and "cannot be written" in err


def test_other_commands_do_without_the_libraries(tmp_path):
    """With networkx and yaml hidden, the command line works and `topology` says what to install."""
    code = (
        "import sys; sys.modules['networkx'] = sys.modules['yaml'] = None\n"
        "from happened.cli import main; sys.exit(main(sys.argv[1:]))"
    )
    command = [sys.executable, "-c", code]
    assert subprocess.run([*command, "explore", "--help"], capture_output=True).returncode == 0
    refused = subprocess.run(
        [*command, "topology", "show", str(TWO_GATEWAYS)], capture_output=True, text=True
    )
    assert refused.returncode == 2 and "pip install 'happened[topology]'" in refused.stderr


def test_cost_tells_what_direct_and_relayed_messages_carry(topology):
    code, out, err = topology("cost", EXAMPLES / "line.yaml", "--messages", "200", "--seed", "1", "--json")
    assert (code, err) == (0, "")
    told = json.loads(out)
    assert [row["protocol"] for row in told["protocols"]] == ["ks", "topological", "zoned-ks"]
    assert all(row["messages"] == 200 and row["entries"] > 0 for row in told["protocols"])
    code, out, _ = topology("cost", EXAMPLES / "line.yaml", "--messages", "50", "--seed", "1", "--fifo")
    assert code == 0 and "FIFO links of exp:0.05 s, seed 1" in out and "bytes/link" in out


def test_cost_takes_the_traffic_of_a_trace(topology, tmp_path, capsys):
    line = str(EXAMPLES / "line.yaml")
    run = ["simulate", "--topology", line, "--messages", "60", "--seed", "1", "--out", str(tmp_path / "run")]
    assert main(run) == 0
    capsys.readouterr()
    code, out, _ = topology("cost", line, "--traffic", tmp_path / "run")
    assert code == 0 and "60 messages" in out
    code, _, err = topology("cost", TWO_GATEWAYS, "--traffic", tmp_path / "run")
    assert code == 2 and "has no process called 'a'" in err


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (["simulate", "--protocol", "topological", "--messages", "50", "--seed", "1"], "undelivered "),
        (["compare", "--protocols", "topological", "--messages", "50", "--seeds", "1"], "4 processes"),
        (["explore", "--protocol", "topological", "--messages", "1"], "programs               60"),
    ],
    ids=["simulate", "compare", "explore"],
)
def test_other_commands_take_a_topology(command, said, capsys, file):
    line = str(EXAMPLES / "line.yaml")
    assert main([*command, "--topology", line]) == 0
    assert said in capsys.readouterr().out
    assert main([*command, "--topology", str(file(FALSE_SEPARATOR))]) == 2
    assert "is no separator" in capsys.readouterr().err


def test_exploring_a_topology_needs_a_protocol_that_relays(capsys):
    line = str(EXAMPLES / "line.yaml")
    assert main(["explore", "--protocol", "ks", "--topology", line]) == 2
    assert "these relay: topological, zoned-ks" in capsys.readouterr().err
    assert main(["explore", "--protocol", "topological", "--processes", "3", "--topology", line]) == 2
    assert "has 4 processes" in capsys.readouterr().err


def test_check_points_out_single_points_of_failure(topology, file):
    code, out, _ = topology("check", EXAMPLES / "departments.yaml", "--json")
    alone = json.loads(out)["single_points_of_failure"]
    assert code == 0 and sorted(alone) == ["po", "rx", "sales", "works"]  # not lx1: lx2 leads past it
    assert alone["po"] == [["ana", "bruno", "carla", "dinis", "eva", "filipe"], ["gil", "hugo", "ines"]]
    code, out, _ = topology("check", EXAMPLES / "departments.yaml")
    assert code == 0 and "4 single points of failure" in out and "works: {" in out
    _, out, _ = topology("check", file("processes: [a, b, c]\n"))
    assert "single point" not in out


@pytest.fixture(scope="module")
def clustered(tmp_path_factory):
    """The trace of three clusters of four processes that mostly send among themselves."""
    run = tmp_path_factory.mktemp("clustered") / "run"
    words = ["--protocol", "ks", "--processes", "12", "--pattern", "clusters:3", "--messages", "900"]
    assert main(["simulate", *words, "--seed", "1", "--out", str(run)]) == 0
    return run


def test_suggest_finds_the_zones_of_a_trace_and_tells_what_they_save(topology, clustered, tmp_path):
    out = tmp_path / "zones.yaml"
    code, told, err = topology("suggest", clustered, "--out", out, "--json")
    assert (code, err) == (0, "")
    found = json.loads(told)
    zones = found["topology"]["zones"].values()
    assert {frozenset((*zone["processes"], *zone["gateways"])) for zone in zones} == {
        frozenset(f"p{i}" for i in range(first, first + 4)) for first in (0, 4, 8)
    }
    assert 0.8 < found["inside"] < 1
    assert topology("check", out)[0] == 0
    cost = json.loads(topology("cost", out, "--traffic", clustered, "--json")[1])["protocols"]
    assert cost == found["protocols"]
    carried = {each["protocol"]: each["entries"] for each in cost}
    assert carried["topological"] < carried["ks"] and carried["zoned-ks"] < carried["ks"]


def test_suggest_says_so_in_words_and_does_not_write_over_a_file(topology, clustered, tmp_path):
    out = tmp_path / "zones.yaml"
    code, told, _ = topology("suggest", clustered, "--out", out)
    assert code == 0 and told.startswith("3 zones; ") and "zoned-ks" in told and "\nks " in told
    before = out.read_text()
    code, _, err = topology("suggest", clustered, "--out", out)
    assert code == 2 and "exists already" in err and out.read_text() == before


def test_suggest_refuses_what_has_no_zones(topology, tmp_path):
    run = tmp_path / "run"
    words = ["--protocol", "ks", "--processes", "3", "--messages", "200", "--seed", "1", "--out", str(run)]
    assert main(["simulate", *words]) == 0
    code, _, err = topology("suggest", run, "--out", tmp_path / "zones.yaml")
    assert code == 2 and "found no zones" in err and not (tmp_path / "zones.yaml").exists()
    assert topology("suggest", run, "--out", tmp_path / "zones.txt")[0] == 2
