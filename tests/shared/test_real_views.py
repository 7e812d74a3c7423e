"""Traces of systems nobody here wrote, in the viewer: opened, selected, followed, searched."""

import json
from itertools import pairwise
from pathlib import Path
from random import Random

import pytest

from happened import causality
from happened.trace import SCHEMA, TraceWriter, read
from happened.trace.importing import import_files
from happened.trace.readers import Options
from happened.view import page, viewed
from view.chromium import Tab

pytestmark = pytest.mark.slow

SAMPLES = (
    "shiviz/chord.log",
    "shiviz/voldemort-simple-threadnames.log",
    "shiviz/simpledb.log",
    "shiviz/tsviz_shared_var_4_threads.log",
    "editing-dag/clownschool.json.gz",
    "etcd-raft/example.ndjson",
    "zipkin/yelp.json",
    "nezha-spans/boutique-2022-08-22-0519.csv",
)


def imported(shared_traces, name, out):
    parsers = shared_traces / "shiviz" / "parsers.json" if name.startswith("shiviz") else None
    import_files([shared_traces / name], out, options=Options(parsers=str(parsers) if parsers else None))
    return out


def opened(chromium, trace, file: Path):
    file.write_text(page(viewed(trace)), encoding="utf-8")
    return Tab(chromium).open(file.as_uri())


@pytest.mark.parametrize("name", SAMPLES)
def test_a_real_trace_can_be_looked_at(chromium, shared_traces, tmp_path, seed, name):
    trace = imported(shared_traces, name, tmp_path / "run")
    dice = Random(seed)
    tab = opened(chromium, trace, tmp_path / "page.html")
    shown = json.loads(tab.page.text_content("#about"))["computations"][0]["name"]
    stamps = causality.stamp([c for c in causality.encode(read(trace)) if c.name == shown])
    names = tab.ask("happened.events()")
    places = [(event, *_split(event)) for event in names]
    for e in dice.sample(names, 6):
        tab.ask(f"happened.select({e!r})")
        name = _split(e)
        past = {event for event, p, s in places if stamps.happened_before((p, s), name)}
        future = {event for event, p, s in places if stamps.happened_before(name, (p, s))}
        assert set(tab.ask("happened.past()")) == past
        assert set(tab.ask("happened.future()")) == future
        assert set(tab.ask("happened.concurrent()")) == set(names) - past - future - {e}
        if past:
            tab.ask(f"happened.select({min(past)!r}, {e!r})")
            path = tab.ask("happened.path()")
            assert path[0] == min(past) and path[-1] == e
            for a, b in pairwise(path):
                assert stamps.happened_before(_split(a), _split(b))
    tab.page.fill("#search", f"event:{names[-1]}")
    assert names[-1] in tab.ask("happened.matches()")
    tab.ask("happened.fit()")
    tab.page.keyboard.press("Escape")
    assert tab.errors == [] and len(tab.requests) == 1
    tab.context.close()


def test_a_violation_planted_in_a_real_trace_is_found(chromium, shared_traces, tmp_path):
    """Two lines are added to an imported log: the later of two messages is delivered first."""
    trace = imported(shared_traces, "shiviz/simpledb.log", tmp_path / "run")
    rows = read(trace).to_pylist(maps_as_pydicts="strict")
    ends = {}
    for row in rows:
        ends[row["process"]] = max(ends.get(row["process"], 0), row["seq"])
    sender, receiver = sorted(ends)[:2]
    planted = [(sender, "send", "early"), (sender, "send", "late")]
    planted += [(receiver, "deliver", "late"), (receiver, "deliver", "early")]
    for process, kind, message in planted:
        ends[process] += 1
        event = {
            "computation": rows[0]["computation"],
            "process": process,
            "seq": ends[process],
            "kind": kind,
        }
        rows.append(
            event | {"message": message, "to": [receiver] if kind == "send" else None, "relevant": True}
        )
    with TraceWriter(tmp_path / "planted") as writer:
        for row in rows:
            writer.append({name: value for name, value in row.items() if name in SCHEMA.names})
    tab = opened(chromium, tmp_path / "planted", tmp_path / "page.html")
    tab.page.get_by_role("tab", name="Faults").click()
    tab.page.get_by_role("button", name="late before early").click()
    seen = set(tab.ask("happened.inView()"))
    assert {f"{sender}#{ends[sender]}", f"{receiver}#{ends[receiver]}"} <= seen
    assert tab.errors == []
    tab.context.close()


def _split(event):
    process, _, seq = event.rpartition("#")
    return process, int(seq)
