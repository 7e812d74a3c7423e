"""Windows of traces: events are renumbered, answers keep their seqs, and what is said is true of the trace.

The oracle closes happened-before over sets of the events that are left; it numbers nothing.
"""

from collections import Counter
from itertools import pairwise
from random import Random

import pyarrow as pa
import pytest

from causality.traces import causal, number, table, wild
from effort import samples
from happened.causality import check, check_order, encode
from happened.causality.analysis import analyse
from happened.causality.judgement import Outcome
from happened.core.errors import CausalityError, TraceFormatError
from happened.trace.tracker_attributes import NUMBER
from oracles.closure import Closure, by_computation

pytestmark = pytest.mark.sampled

TRACES = samples(400)


def window_of(rows, random):
    """Some of the rows: a stretch of each process, without a process, or with holes anywhere."""
    how = random.choice(("stretch", "process", "holes"))
    processes = sorted({row["process"] for row in rows})
    if how == "process" and processes:
        gone = random.choice(processes)
        return [row for row in rows if row["process"] != gone]
    if how == "holes":
        return [row for row in rows if random.random() < 0.7]
    ends = {process: sorted(random.randint(0, 14) for _ in range(2)) for process in processes}
    return [row for row in rows if ends[row["process"]][0] < row["seq"] <= ends[row["process"]][1] + 6]


def windows(seed):
    random = Random(seed)
    for _ in range(TRACES):
        rows = [row for number in range(random.randint(1, 3)) for row in wild(random, f"c{number}")]
        kept = window_of(rows, random)
        random.shuffle(kept)
        yield rows, kept


def steps(row):
    return [(step["process"], step["seq"]) for step in row["path"] or ()]


def test_what_is_said_of_a_window_is_what_the_closure_of_its_events_says(seed):
    judged = found = outside = 0
    for _, kept in windows(seed):
        analysis = analyse(table(kept), gaps="renumber")
        closures = by_computation(kept, window=True)
        assert analysis.totals["quarantined"] == 0 and analysis.totals["events"] == len(kept)
        judged += analysis.totals["deliveries_judged"]
        never = sum(len(c.fates()["never_sent"]) for c in closures.values())
        assert (analysis.totals["sent_outside"], analysis.totals["never_sent"]) == (never, 0)
        assert analysis.totals["causes_outside"] == sum(len(c.outside) for c in closures.values())
        outside += never + analysis.totals["causes_outside"]
        violations = analysis.table("violations").to_pylist()
        for order in ("causal", "fifo"):
            early = {
                (name, m, *closure.first[m, x])
                for name, closure in closures.items()
                for m, x in closure.early_deliveries(order)
            }
            rows = [row for row in violations if row["order_name"] == order]
            assert {
                (row["computation"], row["early"], row["process"], row["early_seq"]) for row in rows
            } == early
            found += len(early)
        for row in violations:
            closure = closures[row["computation"]]
            assert {*steps(row)} <= {*closure.event}
            if row["order_name"] != "total":
                path = steps(row)
                assert (path[0], path[-1]) == (closure.send[row["overtaken"]], closure.send[row["early"]])
                assert all(closure.is_step(*pair) for pair in pairwise(path))
    assert judged > TRACES and found > TRACES // 10 and outside > TRACES


def test_clocks_predecessors_and_messages_name_events_by_the_seqs_of_the_trace(seed):
    for _, kept in windows(seed):
        analysis = analyse(table(kept), gaps="renumber")
        closures = by_computation(kept, window=True)
        numbers = {
            (row["computation"], row["process"]): row["p"] for row in analysis.table("processes").to_pylist()
        }
        clocks = {
            (row["computation"], (row["process"], row["seq"])): row["clock"]
            for row in analysis.table("stamps").to_pylist()
        }
        edges = Counter(
            (row["computation"], (row["cause_process"], row["cause_seq"]), (row["process"], row["seq"]))
            for row in analysis.table("predecessors").to_pylist()
        )
        immediate = set()
        for name, closure in closures.items():
            for f, past in closure.past.items():
                for e in closure.event:
                    told = clocks[name, f][numbers[name, e[0]]] >= e[1] and e != f
                    assert told == (e in past), (e, f)
                immediate |= {(name, e, f) for e in past if not any(e in closure.past[g] for g in past)}
        assert edges == Counter(immediate)
        for row in analysis.table("messages").to_pylist():
            closure = closures[row["computation"]]
            sent = (row["sender"], row["sent_seq"]) if row["sender"] is not None else None
            assert sent == closure.send.get(row["message"])
            received = closure.first.get((row["message"], row["receiver"]))
            assert row["received_seq"] == (None if received is None else received[1])
            assert (row["fate"] == "sent_outside") == (sent is None)


def whole_and_window(random):
    """A trace in which each message is delivered once at most and nothing but deliveries hand over, so that a
    window can say nothing that is not so; in it, deliveries come in any order."""
    chains = causal(random, messages=12)
    for chain in chains.values():
        places = [i for i, event in enumerate(chain) if event["kind"] == "deliver"]
        mixed = random.sample(places, min(3, len(places)))
        for i, j in pairwise(mixed):
            chain[i], chain[j] = chain[j], chain[i]
    rows = number(chains)
    return rows, window_of(rows, random)


def test_what_is_reported_of_a_window_is_true_of_the_trace(seed):
    random = Random(seed)
    found = missed = 0
    for _ in range(TRACES):
        rows, kept = whole_and_window(random)
        try:
            whole = Closure(rows)
        except ValueError:  # a cycle: what was mixed up cannot be
            continue
        for order in ("causal", "fifo", "total"):
            verdict = check_order(encode(table(kept), "renumber"), order, limit=10**6)
            if order == "total":
                for witness in verdict.witnesses:
                    legs = getattr(witness, "legs", None) or (witness.one, witness.other)
                    for a, b in legs:
                        assert whole.first[a.message, a.process] < whole.first[b.message, b.process]
                continue
            for witness in verdict.witnesses:
                whole.confirm(witness)
            early = {(witness.early, witness.process) for witness in verdict.witnesses}
            assert early <= whole.early_deliveries(order)
            found += len(early)
            missed += len(whole.early_deliveries(order) - early)
    assert found > 10 and missed > 10


def test_clocks_that_were_right_in_the_trace_are_right_in_a_window_and_a_low_entry_is_not(seed):
    random = Random(seed)
    planted = 0
    for _ in range(TRACES):
        rows = wild(random)
        closure = Closure(rows)
        for row in rows:
            e = (row["process"], row["seq"])
            row["clock"] = [*Counter(p for p, _ in closure.past[e] | {e}).items()]
        kept = window_of(rows, random)
        if {row["kind"] for row in rows} - {row["kind"] for row in kept} >= {"deliver"}:
            continue  # receives would stand in for the deliveries that the window lacks
        right = analyse(table(kept), gaps="renumber", questions=["verify-clocks"])
        faults = ("clock_mismatches", "clock_regressions", "clock_impossible")
        assert [right.totals[name] for name in faults] == [0, 0, 0]
        inside = Closure(kept, window=True)
        spoilt = [
            row for row in kept if {p for p, _ in inside.past[row["process"], row["seq"]]} - {row["process"]}
        ]
        if spoilt:
            row = random.choice(spoilt)
            other = random.choice(
                sorted({p for p, _ in inside.past[row["process"], row["seq"]]} - {row["process"]})
            )
            row["clock"] = [(p, n) for p, n in row["clock"] if p != other]
            wrong = analyse(table(kept), gaps="renumber", questions=["verify-clocks"]).table("clocks")
            named = {
                (each["process"], each["seq"]) for each in wrong.to_pylist() if each["fault"] == "mismatch"
            }
            assert named == {(row["process"], row["seq"])}
            planted += 1
    assert planted > TRACES // 4


def test_trackers_are_not_judged_in_a_window():
    rows = [
        {"process": "p", "seq": seq, "kind": "internal", "attributes": [(NUMBER, str(seq))]} for seq in (3, 4)
    ]
    totals = analyse(table(rows), gaps="renumber", questions=["verify-trackers"]).totals
    assert totals["tracker_unjudged"] == 2 and totals["tracker_faults"] == 0


def test_a_window_without_gaps_is_the_same_arrays_and_one_with_gaps_is_found_by_its_seqs(seed):
    rows = wild(Random(seed), steps=60)
    for c in encode(table(rows), "renumber"):
        assert c.recorded_seq is c.seq and c.is_window
    kept = [row for row in rows if row["seq"] > 2]
    for c in encode(table(kept), "renumber"):
        for e in range(c.events):
            event = c.event(e)
            assert c.index(event.process, event.seq) == e
            assert event.seq == c.seq[e] + 2 == table(kept)["seq"][int(c.row[e])].as_py()
        with pytest.raises(LookupError):
            c.index(c.process_names[0], 1)
    for c in encode(table(rows)):
        assert c.recorded_seq is c.seq and not c.is_window and not c.causes_outside


def test_a_cycle_a_cause_that_is_none_and_two_rows_of_one_event_are_faults_of_windows_too():
    deliver = {"kind": "deliver"}
    rows = [
        {"computation": "cycle", "process": "p", "seq": 5} | deliver | {"message": "b"},
        {"computation": "cycle", "process": "p", "seq": 7, "kind": "send", "message": "a", "to": ["q"]},
        {"computation": "cycle", "process": "q", "seq": 3} | deliver | {"message": "a"},
        {"computation": "cycle", "process": "q", "seq": 9, "kind": "send", "message": "b", "to": ["p"]},
        {"computation": "null", "process": "p", "seq": 4, "kind": "internal", "causes": [None]},
        {"computation": "two", "process": "p", "seq": 4, "kind": "internal"},
        {"computation": "two", "process": "p", "seq": 4, "kind": "internal", "label": "another"},
    ]
    analysis = analyse(table(rows), gaps="renumber")
    reasons = {row["computation"]: row["reason"] for row in analysis.table("quarantine").to_pylist()}
    assert reasons.keys() == {"cycle", "null", "two"}
    assert "p#5 deliver b" in reasons["cycle"] and "names an event twice" in reasons["two"]
    assert (analysis.totals["computations"], analysis.totals["quarantined"]) == (1, 7)


def test_seqs_beyond_32_bits_are_kept_where_there_is_room_and_refused_where_there_is_none():
    start = 5_000_000_000
    rows = [{"process": "p", "seq": start + i, "kind": "internal"} for i in (0, 7)]
    sparse = analyse(table(rows), gaps="renumber", questions=["stamp"], timestamps="sparse").table("stamps")
    assert [row["entries"][0]["seq"] for row in sparse.to_pylist()] == [start, start + 7]
    with pytest.raises(TraceFormatError, match="32 bits"):
        analyse(table(rows), gaps="renumber", questions=["stamp"])


def test_a_judgement_says_what_a_window_leaves_open():
    rows = [
        {"process": "p", "seq": 3, "kind": "send", "message": "a", "to": ["q"]},
        {"process": "q", "seq": 8, "kind": "deliver", "message": "a", "causes": [{"process": "p", "seq": 1}]},
        {"process": "q", "seq": 9, "kind": "deliver", "message": "before"},
    ]
    judgement = check(table(rows), gaps="renumber")
    assert judgement.outcome is Outcome.HOLDS
    assert "1 delivery of a message sent outside the window was not judged" in judgement.sentence
    assert "1 cause outside the window is absent, not false" in judgement.sentence
    with pytest.raises(CausalityError, match="complete"):
        check(table(rows), gaps="renumber", complete=True)
    with pytest.raises(CausalityError, match="gaps can be"):
        check(table(rows), gaps="ignore")


def test_wide_unions_of_windows_are_split_as_others_are(seed, monkeypatch):
    from happened.causality import computation

    random = Random(seed)
    kept = [row for i in range(12) for row in window_of(wild(random, f"c{i:02d}"), random)]
    whole = analyse(table(kept), gaps="renumber")
    monkeypatch.setattr(computation.unite, "__defaults__", (1,))
    split = analyse(table(kept), gaps="renumber")
    assert {name: n for name, n in whole.totals.items() if n} == {
        name: n for name, n in split.totals.items() if n
    }
    assert len(split.tables["stamps"]) > len(whole.tables["stamps"])
    stamps = [
        pa.concat_tables(each.tables["stamps"]).sort_by(
            [("computation", "ascending"), ("event", "ascending")]
        )
        for each in (whole, split)
    ]
    assert stamps[0].equals(stamps[1])
