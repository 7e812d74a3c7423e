"""Exports hold the same computation, as far as their formats can; parts of a trace keep its order."""

import csv
import io
import json
import re
import struct
from math import dist
from random import Random
from xml.etree import ElementTree

import networkx
import numpy as np
import pytest

from causality.traces import busy, number, table, wild
from effort import samples
from happened import causality
from happened.causality.analysis import analyse
from happened.cli import main
from happened.core.errors import LocalProtocolError
from happened.trace import read, write_jsonl
from happened.trace.importing import import_files
from happened.trace.readers import Options
from happened.view.browser import find_browser, png_of
from happened.view.exports import FORMATS, PICTURES
from happened.view.prepared import Prepared
from happened.view.slicing import Slice, slice_table, sliced
from happened.view.space_time import _Lines
from oracles.closure import by_computation

MANY = samples(80)


def prepared(rows):
    whole = table(rows)
    return [Prepared(c, whole) for c in causality.encode(whole)]


def export(to, rows):
    return "".join(FORMATS[to].write(prepared(rows)))


def order(rows):
    """Happened-before as a set of pairs of (computation, process, seq)."""
    return {
        ((name, *e), (name, *f))
        for name, closure in by_computation(rows).items()
        for f in closure.event
        for e in closure.past[f]
    }


def order_of_table(whole):
    return order(whole.to_pylist(maps_as_pydicts="strict"))


def _run(event):
    """The name of a run, which an imported computation has after that of its file."""
    return event[0].rpartition("#")[2]


def traces(seed, many=MANY):
    for k in range(many):
        random = Random(seed + k)
        yield [row for c in range(random.randint(1, 2)) for row in busy(random, f"c{c}")]


@pytest.mark.sampled
def test_a_shiviz_log_is_imported_as_the_same_computation(tmp_path, seed):
    for k, rows in enumerate(traces(seed)):
        (tmp_path / f"{k}.log").write_text(export("shiviz", rows))
        done = import_files([tmp_path / f"{k}.log"], tmp_path / f"imported{k}", options=Options())
        assert done.summary["format"] == "shiviz" and not done.summary["quarantined"]
        back = read(tmp_path / f"imported{k}")
        found = order_of_table(back)
        assert {((_run(e), *e[1:]), (_run(f), *f[1:])) for e, f in found} == order(rows)
        assert back.num_rows == len(rows)


TEXTS = (
    "",
    "plain",
    'a "quoted", text',
    "two\nlines",
    "\r",
    "נכתב 🦊\u202e",
    "=1+1",
    "{}",
    "x" * 200_000,
    "\x85",
)


def decorated(random, rows):
    """The same events, and whatever else a trace may say of each."""
    names = sorted({row["process"] for row in rows})
    for row in rows:
        row["relevant"] = random.random() < 0.3
        row["label"] = random.choice((None, *TEXTS[1:]))
        row["time"] = random.choice((None, 0, -5, random.randrange(2**62)))
        row["attributes"] = random.choice((None, {}, {"kind": "a", "id": "", random.choice(TEXTS): "b"}))
        row["clock"] = random.choice((None, {name: random.randrange(9) for name in names}))
        row["control_entries"], row["control_bytes"] = random.choice(((None, None), (0, 7)))
        if row["kind"] == "send" and random.random() < 0.1:
            row["kind"] = "unordered"
    return rows


@pytest.mark.sampled
@pytest.mark.parametrize("to", ["perfetto", "csv", "jsonl"])
def test_what_is_imported_again_is_the_same_trace(tmp_path, seed, to):
    random = Random(seed)
    for k, rows in enumerate(traces(seed, MANY // 4)):
        rows = decorated(random, rows)
        file, out = tmp_path / f"{k}.export", tmp_path / f"imported{k}"
        file.write_text(export(to, rows), encoding="utf-8", newline="")
        done = import_files([file], out, options=Options())
        assert (done.summary["format"], done.summary["quarantined"]) == (to, 0)
        key = [(name, "ascending") for name in ("computation", "process", "seq")]
        back, given = read(out).sort_by(key), table(rows).sort_by(key)
        for row in (said := given.to_pylist(maps_as_pydicts="strict")):
            row["attributes"] = row["attributes"] or None
        assert back.to_pylist(maps_as_pydicts="strict") == said


def test_an_export_that_was_cut_is_read_up_to_there(tmp_path):
    rows = number({"p": [{"kind": "internal", "label": f"l\n{k}"} for k in range(9)]}, "c")
    for to in ("perfetto", "csv"):
        text = export(to, rows)
        (tmp_path / to).write_text(text[: text.index("l\\n6" if to == "perfetto" else "l\n6")])
        done = import_files([tmp_path / to], tmp_path / f"imported {to}", options=Options())
        assert done.summary["format"] == to and done.summary["quarantined"] == 1
        assert read(tmp_path / f"imported {to}").num_rows == 6


def test_every_format_shows_a_message_outside_of_all_orders():
    chains = {
        "p": [{"kind": "unordered", "message": "m", "to": ["q"]}],
        "q": [{"kind": "deliver", "message": "m"}],
    }
    for to in sorted(name for name, each in FORMATS.items() if not each.binary):
        assert "".join(FORMATS[to].write(prepared(number(chains))))


def test_names_with_white_space_stay_apart_in_shiviz(tmp_path):
    rows = number({"a b": [{"kind": "internal"}], "a_b": [{"kind": "internal", "label": "x\n{y}"}] * 2})
    (tmp_path / "log").write_text(export("shiviz", rows))
    import_files([tmp_path / "log"], tmp_path / "imported", options=Options())
    back = read(tmp_path / "imported")
    assert sorted(back["process"].to_pylist()) == ["a_b", "a_b_2", "a_b_2"]


@pytest.mark.sampled
def test_our_own_lines_are_the_same_trace(tmp_path, seed):
    for rows in traces(seed):
        (tmp_path / "trace.jsonl").write_text(export("jsonl", rows))
        key = ("computation", "process", "seq")
        back = read(tmp_path / "trace.jsonl").sort_by([(name, "ascending") for name in key])
        expected = table(rows).sort_by([(name, "ascending") for name in key])
        assert back.to_pylist() == expected.to_pylist()


def test_the_paths_of_a_dot_graph_are_happened_before(seed):
    for rows in traces(seed, 5):
        rows = [row for row in rows if row["computation"] == "c0"]
        text = export("dot", rows)
        graph = networkx.DiGraph()
        for line in text.splitlines():
            nodes = re.findall(r"\be0_(\d+)\b(?= ->| \[|$)|-> e0_(\d+)", line)
            chain = [int(a or b) for a, b in nodes]
            graph.add_nodes_from(chain)
            if "->" in line:
                networkx.add_path(graph, chain)
        (each,) = prepared(rows)
        names = [("c0", each.c.event(e).process, each.c.event(e).seq) for e in range(each.c.events)]
        closure = networkx.transitive_closure(graph)
        assert {(names[a], names[b]) for a, b in closure.edges} == order(rows)


def test_every_edge_is_a_flow_of_perfetto(seed):
    for rows in traces(seed, 5):
        events = json.loads(export("perfetto", rows))["traceEvents"]
        shown = [event for event in events if event["ph"] == "X"]
        assert len(shown) == len(rows) and all(event["dur"] > 0 for event in shown)
        tracks = {(e["pid"], e["tid"]): e["args"]["name"] for e in events if e["name"] == "thread_name"}
        assert {tracks[e["pid"], e["tid"]] for e in shown} == {row["process"] for row in rows}
        begun, ended = ({e["id"]: e for e in events if e["ph"] == ph} for ph in "sf")
        edges = sum(int((c.source >= 0).sum()) + c.causes.size for c in causality.encode(table(rows)))
        assert begun.keys() == ended.keys() and len(begun) == edges
        # An end of a flow stands where an event does, or the viewer would not draw it.
        places = {(e["pid"], e["tid"], e["ts"]) for e in shown}
        assert {(e["pid"], e["tid"], e["ts"]) for e in (*begun.values(), *ended.values())} <= places


def test_a_csv_has_the_timestamps_of_the_judge(seed):
    for rows in traces(seed, 5):
        stamps = causality.stamp(table(rows))
        told = list(csv.DictReader(io.StringIO(export("csv", rows))))
        assert len(told) == len(rows)
        for row in told:
            clock = stamps.vector(row["process"], int(row["seq"]), row["computation"])
            assert json.loads(row["timestamp"]) == clock
            assert int(row["before"]) == sum(clock.values()) - 1


SPAN = {"span": "a", "end": "5"}


def test_a_picture_has_every_event_and_no_markup_of_the_trace(seed):
    rows = wild(Random(seed)) or number({"p": [{"kind": "internal"}]})
    svg = ElementTree.fromstring(export("svg", rows))
    assert len(svg.findall(".//{*}title")) == len(rows)
    evil = "<script>alert(1)</script>"
    text = export("svg", number({evil: [{"kind": "internal", "label": evil}]}, evil))
    assert "<script" not in text and ElementTree.fromstring(text) is not None
    control = number(
        {"a\0\x1b": [{"kind": "internal", "label": "\x07\ufffe 🦊", "attributes": SPAN, "time": 1}]}
    )
    for picture in PICTURES:
        drawn = "".join(FORMATS["svg"].write(prepared(control), picture))
        assert ElementTree.fromstring(drawn) is not None and "\ufffd" in drawn and "🦊" in drawn
    with pytest.raises(LocalProtocolError, match="at most 5,000 events"):
        export("svg", number({"p": [{"kind": "internal"}] * 6000}))


def test_a_sequence_diagram_has_an_arrow_for_each_delivery_and_no_syntax_of_the_trace(seed):
    for rows in traces(seed, 5):
        text = export("mermaid", rows)
        edges = sum(int((c.source >= 0).sum()) for c in causality.encode(table(rows)))
        assert text.count("-)") == edges
    evil = export("mermaid", number({"a;b": [{"kind": "internal", "label": "x\nNote over <b>: %%{y}"}]}))
    assert evil.splitlines() == [
        "sequenceDiagram",
        "  participant c0p0 as a#59;b",
        "  Note over c0p0: x Note over #60;b#62;: #37;#37;#123;y#125;",
    ]


def original(row):
    named = (row["attributes"] or {}).get("original")
    return (row["process"], row["seq"]) if named is None else (row["process"], int(named.rpartition("#")[2]))


@pytest.mark.sampled
def test_parts_keep_the_order_of_the_whole(seed):
    for k in range(MANY):
        random = Random(seed + k)
        rows = busy(random)
        (each,) = prepared(rows)
        (closure,) = by_computation(rows).values()
        keep = [random.random() < 0.6 for _ in range(each.c.events)]
        if not any(keep):
            continue
        kept = np.array(keep)
        part = slice_table(each, kept)
        new = part.to_pylist(maps_as_pydicts="strict")
        names = {(row["process"], row["seq"]): original(row) for row in new}
        expected = {(each.c.event(e).process, each.c.event(e).seq) for e in kept.nonzero()[0]}
        assert set(names.values()) == expected
        restricted = {(e, f) for f in expected for e in closure.past[f] & expected}
        assert {(names[e[1:]], names[f[1:]]) for e, f in order(new)} == restricted


def test_a_part_of_a_trace_that_holds_is_not_at_fault(tmp_path, seed):
    main(
        [
            "simulate",
            "--messages",
            "60",
            "--processes",
            "4",
            "--seed",
            str(seed % 1000),
            "--out",
            str(tmp_path / "run"),
        ]
    )
    whole = read(tmp_path / "run")
    (c,) = causality.encode(whole)
    each = Prepared(c, whole)
    for part in (
        Slice(past="p2#20"),
        Slice(future="p1#9"),
        Slice(window=(10, 20)),
        Slice(processes=("p0", "p3")),
    ):
        (left,) = sliced([each], part)
        assert left.c.events < c.events
        totals = analyse(left.table, questions=["order"]).totals
        astray = ("lost", "never_sent", "misdelivered", "duplicated", "quarantined")
        assert not any(totals[name] for name in (*astray, "causal_violations", "lost_causes"))


def test_the_command_writes_parts_and_says_what_is_wrong(tmp_path, capsys):
    rows = number({"p": [{"kind": "internal", "label": f"l{k}", "time": k * 10**6} for k in range(9)]}, "c")
    trace = tmp_path / "trace.jsonl"
    write_jsonl(table(rows), trace)
    assert main(["export", str(trace), "--to", "jsonl", "--past", "p#4"]) == 0
    assert capsys.readouterr().out.count("\n") == 4
    assert main(["export", str(trace), "--to", "csv", "--time", "2ms..5ms"]) == 0
    assert capsys.readouterr().out.count("\n") == 1 + 4
    out = tmp_path / "part"
    assert main(["export", str(trace), "--to", "trace", "--window", "3..6", "--out", str(out)]) == 0
    assert read(out).num_rows == 4
    for wrong, said in (
        (["--to", "trace"], "name one with --out"),
        (["--to", "csv", "--past", "p#99"], "no event 'p#99'"),
        (["--to", "csv", "--process", "q"], "no process 'q'"),
        (["--to", "csv", "--computation", "d"], "no computation 'd'"),
        (["--to", "csv", "--window", "50..60"], "no event is in this part"),
    ):
        assert main(["export", str(trace), *wrong]) == 2
        assert said in capsys.readouterr().err
    for wrong in (["--to", "gif"], ["--to", "csv", "--window", "6..3"], ["--to", "csv", "--time", "x..y"]):
        with pytest.raises(SystemExit):
            main(["export", str(trace), *wrong])


SPANS = {
    "web": [
        {"kind": "internal", "label": "GET /", "time": 0, "attributes": {"span": "a", "end": "9000000"}},
    ],
    "db": [
        {
            "kind": "internal",
            "label": "SELECT",
            "time": 2_000_000,
            "attributes": {"span": "b", "parent": "a", "end": "5000000", "service": "store"},
            "causes": [{"process": "web", "seq": 1}],
        },
    ],
}


def test_a_picture_is_of_order_of_predecessors_or_of_spans(seed):
    rows = busy(Random(seed))
    for row in rows[::2]:
        row["relevant"] = True
    (each,) = prepared(rows)
    picture = ElementTree.fromstring("".join(FORMATS["svg"].write([each], "hasse")))
    assert len(picture.findall(".//{*}title")) == len(rows[::2])
    assert len(picture.findall(".//{*}path[@class='message']")) == each.reduction[0].size
    with pytest.raises(LocalProtocolError, match="nothing to draw"):
        list(FORMATS["svg"].write([each], "spans"))
    (spans,) = prepared(number(SPANS))
    text = "".join(FORMATS["svg"].write([spans], "spans"))
    bars = ElementTree.fromstring(text).findall(".//{*}rect[@class='span']")
    assert [float(bar.get("width")) for bar in bars] == pytest.approx([520, 520 / 3], abs=0.1)
    assert "store: SELECT" in text and "3 ms" in text


def test_arrows_lead_around_events_that_are_not_theirs():
    places = [(0.0, 0.0), (30.0, 40.0), (60.0, 80.0), (90.0, 40.0)]
    arrows = _Lines(places)
    assert "Q" in arrows.draw(places[0], places[2]) and "Q" not in arrows.draw(places[0], places[1])
    curve = arrows.draw(places[0], places[2])
    x1, y1, cx, cy, x2, y2 = map(float, re.findall(r"-?[\d.]+", curve.split('d="')[1])[:6])
    for k in range(101):
        s = k / 100
        x = (1 - s) ** 2 * x1 + 2 * s * (1 - s) * cx + s**2 * x2
        y = (1 - s) ** 2 * y1 + 2 * s * (1 - s) * cy + s**2 * y2
        assert dist((x, y), places[1]) > 5


def test_several_computations_are_no_picture(tmp_path, capsys):
    rows = [row for name in "ab" for row in number({"p": [{"kind": "internal"}]}, name)]
    write_jsonl(table(rows), tmp_path / "t.jsonl")
    assert main(["export", str(tmp_path / "t.jsonl"), "--to", "svg"]) == 2
    assert "choose one with --computation: 'a', 'b'" in capsys.readouterr().err
    assert main(["export", str(tmp_path / "t.jsonl"), "--to", "svg", "--computation", "a"]) == 0
    assert capsys.readouterr().out.startswith("<svg")


def test_png_is_drawn_by_the_browser_of_the_machine(tmp_path, capsys, monkeypatch):
    write_jsonl(table(number({"p": [{"kind": "internal", "label": "🦊"}] * 9})), tmp_path / "t.jsonl")
    out = tmp_path / "t.png"
    if find_browser() is None:
        pytest.skip("no Chromium was found, so no picture was drawn; `make test` installs it where it may")
    command = ["export", str(tmp_path / "t.jsonl"), "--to", "png", "--out", str(out)]
    assert main(command) == 0
    (each,) = prepared(number({"p": [{"kind": "internal"}] * 9}))
    svg = ElementTree.fromstring("".join(FORMATS["svg"].write([each])))
    size = struct.unpack(">II", out.read_bytes()[16:24])
    assert size == (2 * int(svg.get("width")), 2 * int(svg.get("height")))
    assert main(command) == 2 and "exists" in capsys.readouterr().err
    monkeypatch.setenv("CHROMIUM", str(tmp_path / "absent"))
    assert main([*command, "--force"]) == 2 and "write --to svg" in capsys.readouterr().err
    monkeypatch.delenv("CHROMIUM")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert main([*command, "--force"]) == 2 and "apt install chromium" in capsys.readouterr().err
    assert out.read_bytes()[:4] == b"\x89PNG"
    with pytest.raises(LocalProtocolError, match="too large"):
        png_of('<svg width="100000" height="10000">')
