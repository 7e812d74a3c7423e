"""What a scene says of the order of events is what the definitions say."""

from random import Random

import numpy as np
import pytest

from causality.traces import causal, number, table, wild
from effort import samples
from happened import ask, causality
from happened.causality.reach import between, everything, future, levels_of, past
from happened.trace import write_jsonl
from happened.view import viewed
from happened.view.prepared import Prepared
from happened.view.scene import scene
from happened.view.server import Windows
from happened.view.texts import LONGEST, Texts, attribute_numbers, cut
from oracles.closure import by_computation
from view.unpacking import Unpacked

pytestmark = pytest.mark.sampled


MANY = samples(240)


def wild_traces(seed, many=MANY):
    for each in range(many):
        rows = wild(Random(seed + each))
        if rows:
            yield rows


def of(rows):
    whole = table(rows)
    (c,) = causality.encode(whole)
    return Prepared(c, whole)


def named(c, extent):
    return {
        (c.process_names[p], seq)
        for p in range(c.processes)
        for seq in range(int(extent.begin[p]) + 1, int(extent.end[p]) + 1)
    }


def test_extents_are_the_past_and_the_future(seed):
    for rows in wild_traces(seed):
        c = of(rows).c
        (closure,) = by_computation(rows).values()
        assert named(c, everything(c)) == set(closure.event)
        for e in closure.event:
            i = c.index(*e)
            after = {f for f in closure.event if closure.happened_before(e, f)}
            assert named(c, past(c, i)) == closure.past[e] | {e}
            assert named(c, future(c, i)) == after | {e}
            assert past(c, i).events == len(closure.past[e]) + 1
            assert set(np.flatnonzero(past(c, i).mask(c))) == {c.index(*f) for f in closure.past[e] | {e}}


def test_the_steps_of_a_scene_give_past_and_future(seed):
    for rows in wild_traces(seed):
        shown = Unpacked(scene(of(rows)))
        (closure,) = by_computation(rows).values()
        names = shown.header["processes"]
        assert set(shown.events) == set(closure.event)
        for e in closure.event:
            newest, first = shown.past(e), shown.future(e)
            before = {f for f in shown.events if f[1] <= newest[names.index(f[0])]} - {e}
            after = {f for f in shown.events if f[1] >= first[names.index(f[0])]} - {e}
            assert before == closure.past[e]
            assert after == {f for f in closure.event if closure.happened_before(e, f)}
        sizes = dict(zip(shown.events, shown.arrays["past_sizes"].tolist(), strict=True))
        assert sizes == {e: len(closure.past[e]) for e in closure.event}


def test_a_window_knows_the_same_of_its_own_events(seed):
    for rows in wild_traces(seed, samples(120)):
        prepared = of(rows)
        levels = prepared.levels
        low = int(np.percentile(levels, 30))
        shown = Unpacked(scene(prepared, between(prepared.c, levels, low, low + 3)))
        (closure,) = by_computation(rows).values()
        names = shown.header["processes"]
        assert set(shown.events) <= set(closure.event)
        for e in shown.events:
            newest, first = shown.past(e), shown.future(e)
            for f in shown.events:
                if f != e:
                    q = names.index(f[0])
                    assert (f[1] <= newest[q]) == closure.happened_before(f, e)
                    assert (f[1] >= first[q]) == closure.happened_before(e, f)


def test_the_hasse_diagram_is_of_the_relevant_events(seed):
    for rows in wild_traces(seed, samples(120)):
        random = Random(seed)
        for row in rows:
            row["relevant"] = random.random() < 0.5
        prepared = of(rows)
        shown = Unpacked(scene(prepared))
        edges = causality.predecessors([prepared.c], relevant_only=any(row["relevant"] for row in rows))
        expected = {
            (prepared.c.event(int(a)).id, prepared.c.event(int(b)).id)
            for a, b in zip(edges.causes[0], edges.effects[0], strict=True)
        }
        ids = [f"{p}#{seq}" for p, seq in shown.events]
        a, b, level = (shown.arrays[f"hasse_{name}"] for name in ("causes", "effects", "level"))
        assert {(ids[i], ids[j]) for i, j in zip(a, b, strict=True)} == expected
        assert all(level[i] < level[j] for i, j in zip(a, b, strict=True))


def test_a_held_message_is_between_its_arrival_and_its_delivery(seed):
    chains = causal(Random(seed))
    for events in chains.values():
        arrivals = [(Random(seed).randint(0, k), e) for k, e in enumerate(events) if e["kind"] == "deliver"]
        for at, event in reversed(arrivals):
            events.insert(at, event | {"kind": "receive"})
    rows = number(chains)
    shown = Unpacked(scene(of(rows)))
    kinds = {(row["process"], row["seq"]): (row["kind"], row.get("message")) for row in rows}
    held = {
        (shown.events[arrival], shown.events[delivery])
        for delivery, arrival in enumerate(shown.arrays["arrival"])
        if arrival >= 0
    }
    assert len(held) == sum(row["kind"] == "deliver" for row in rows)
    for arrival, delivery in held:
        assert arrival[0] == delivery[0] and arrival[1] < delivery[1]
        assert kinds[arrival] == ("receive", kinds[delivery][1])


def test_faults_name_the_events_of_their_witnesses(tmp_path, seed):
    for k, rows in enumerate(wild_traces(seed, 30)):
        write_jsonl(table(rows), tmp_path / f"{k}.jsonl")
        seen = viewed(tmp_path / f"{k}.jsonl")
        witnesses = seen.checked.judgement.witnesses
        deliveries = seen.checked.deliveries
        astray = deliveries.duplicated + deliveries.misdelivered + deliveries.never_sent
        for each in seen.computations:
            shown = Unpacked(scene(each))
            told = [fault["names"] for fault in shown.header["faults"]]
            assert len(told) == len(witnesses) and each.fault_count == len(told) + astray
            ids = [f"{p}#{seq}" for p, seq in shown.events]
            for fault, witness in zip(shown.header["faults"], witnesses, strict=True):
                assert [ids[i] for i in fault["events"]] == fault["names"]
                assert [ids[i] for i in fault["path"]] == [e.id for e in witness.path]


@pytest.mark.parametrize("most", [1, 20, 10**6])
def test_windows_hold_no_more_than_they_may_and_what_was_asked_for(monkeypatch, seed, most):
    monkeypatch.setattr("happened.view.server.MOST_EVENTS", most)
    for rows in wild_traces(seed, 10):
        prepared = of(rows)
        windows = Windows(prepared)
        widest = int(np.bincount(prepared.levels).max())
        for low, high in ((1, 3), (-5, 2), (windows.depth, windows.depth + 9), (3, 1)):
            shown = Unpacked(windows.window(low, high))
            assert len(shown.events) <= max(most, widest)
            if prepared.c.events <= most:
                assert shown.header["window"] is None and len(shown.events) == prepared.c.events
            else:
                first, last = shown.header["window"]
                inside = (prepared.levels >= first) & (prepared.levels <= last)
                assert len(shown.events) == inside.sum()
                middle = sum(min(max(level, 1), windows.depth) for level in (low, high)) // 2
                assert first <= middle <= last


def test_slices_are_past_and_future(seed):
    for rows in wild_traces(seed, 10):
        (closure,) = by_computation(rows).values()
        windows = Windows(of(rows))
        for e in closure.event:
            i = windows.prepared.c.index(*e)
            after = {f for f in closure.event if closure.happened_before(e, f)}
            assert set(Unpacked(windows.slice(i, "past")).events) == closure.past[e] | {e}
            assert set(Unpacked(windows.slice(i, "future")).events) == after | {e}
            assert windows.reach(i) == {"past": len(closure.past[e]), "future": len(after)}
            for f in closure.event:
                path = windows.path(i, windows.prepared.c.index(*f))
                assert (path is not None) == closure.happened_before(e, f)


def test_long_texts_are_cut_and_counted():
    texts = Texts(room=3000)
    numbers = texts.numbers_of(["short", "x" * 10**6, None, "short", "y" * 2500])
    assert numbers.tolist() == [0, 1, -1, 0, -1]
    assert texts.all[1].startswith("x" * LONGEST + "… (1,000,000 char")
    assert texts.left_out == 1
    assert cut("abc", 2) == "ab… (3 characters)"


def test_attributes_come_after_what_the_row_says():
    whole = table([{"process": "p", "seq": 1, "kind": "internal", "attributes": {"a": "1", "b": "x" * 5000}}])
    texts = Texts()
    (number,) = attribute_numbers(whole["attributes"], [{"to": "q"}], texts)
    shown = texts.all[number]
    assert shown[:4] == ["to", "q", "a", "1"] and shown[4] == "b" and len(shown[5]) < 2100


def test_the_critical_path_leads_from_what_was_waited_for(seed):
    rows = number(
        {
            "p": [{"kind": "send", "message": "a", "to": ["q"], "time": 0}, {"kind": "internal", "time": 90}],
            "q": [
                {"kind": "internal", "time": 40},
                {"kind": "deliver", "message": "a", "time": 50},
                {"kind": "send", "message": "b", "to": ["r"], "time": 60},
            ],
            "r": [{"kind": "internal", "time": 5}, {"kind": "deliver", "message": "b", "time": 100}],
        }
    )
    each = of(rows)
    named = [each.c.event(e).id for e in each.critical_path]
    assert named == ["q#1", "q#2", "q#3", "r#2"]
    assert each.critical_steps == [10, 10, 40]
    why = ask.why(table(rows), "r#2").late  # which leaves out events between two others of one process
    assert [step.event.id for step in why] == ["q#1", "q#3", "r#2"]
    for rows in wild_traces(seed, 20):
        each = of(rows)
        path = each.critical_path
        chains = levels_of(each.c)
        assert chains[path].tolist() == list(range(1, int(chains.max()) + 1))


def physical(closure, rows):
    """For each event, what stands to its left: its past and, if a message came with it, the send of that."""
    sends = {
        row["message"]: (row["process"], row["seq"]) for row in rows if row["kind"] in ("send", "unordered")
    }
    for row in rows:
        e = (row["process"], row["seq"])
        left = set(closure.past[e])
        if row["kind"] in ("receive", "deliver") and row["message"] in sends:
            left.add(sends[row["message"]])
        yield e, left


def has_circle(left):
    seen, done = set(), set()

    def visit(e):
        if e in done or e in seen:
            return e not in done
        seen.add(e)
        found = any(visit(f) for f in left[e])
        done.add(e)
        return found

    return any(visit(e) for e in left)


def test_nothing_stands_left_of_what_happened_before_it_nor_of_the_send_of_its_message(seed):
    straight = 0
    for rows in wild_traces(seed):
        each = of(rows)
        (closure,) = by_computation(rows).values()
        left = dict(physical(closure, rows))
        circle = has_circle(left)
        straight += not circle

        def place(e, each=each):
            return int(each.levels[each.c.index(*e)])

        for e in left:
            before = closure.past[e] if circle else left[e]
            assert all(place(f) < place(e) for f in before), (e, rows)
            if not circle:  # and no farther right than that
                assert place(e) == 1 + max(map(place, left[e]), default=0)
    assert straight


def test_an_arrival_stands_right_of_its_send_and_so_does_its_held_message():
    each = of(
        number(
            {
                "a": [{"kind": "send", "message": "first", "to": ["b", "c"]}],
                "b": [
                    {"kind": "receive", "message": "first"},
                    {"kind": "deliver", "message": "first"},
                    {"kind": "send", "message": "second", "to": ["c"]},
                ],
                "c": [
                    {"kind": "receive", "message": "second"},
                    {"kind": "receive", "message": "first"},
                    {"kind": "deliver", "message": "first"},
                    {"kind": "deliver", "message": "second"},
                ],
            }
        )
    )
    placed = {each.c.event(e).id: int(each.levels[e]) for e in range(each.c.events)}
    assert placed == {"a#1": 1, "b#1": 2, "b#2": 3, "b#3": 4, "c#1": 5, "c#2": 6, "c#3": 7, "c#4": 8}
