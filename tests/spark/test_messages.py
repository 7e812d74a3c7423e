"""What became of each message: by hand, against another way of counting, and the same whole and cut."""

from collections import Counter

import pyarrow.parquet as pq

from causality import traces
from happened.causality import check_delivery, encode
from happened.causality.analysis import analyse
from happened.spark.pipeline import analyze_path
from spark.test_analyze import wild_rows, write

FATES = ("delivered", "duplicated", "lost", "misdelivered", "never_sent")


def test_each_fate_by_hand():
    """The clock of q is far ahead, as `back` shows; one end of `untimed` has no time."""
    chains = {
        "p": [
            {"kind": "send", "message": "both", "to": ["q", "r", "q"], "time": 10},
            {"kind": "deliver", "message": "back", "time": 30},
            {"kind": "send", "message": "untimed", "to": ["q"]},
        ],
        "q": [
            {"kind": "deliver", "message": "both", "time": 115},
            {"kind": "deliver", "message": "both", "time": 116},
            {"kind": "send", "message": "back", "to": ["p"], "time": 120},
            {"kind": "deliver", "message": "untimed", "time": 150},
        ],
        "s": [
            {"kind": "deliver", "message": "both", "time": 40},
            {"kind": "deliver", "message": "nothing", "time": 41},
            {"kind": "deliver", "message": "nothing", "time": 42},
        ],
    }
    analysis = analyse(traces.table(traces.number(chains, "c")), questions=["messages", "epochs"])
    found = sorted(tuple(row.values())[1:] for row in analysis.table("messages").to_pylist())
    ahead = {row["process"]: row["clock_offset"] for row in analysis.table("skew").to_pylist()}
    assert ahead["q"] - ahead["p"] >= 90
    assert found == [
        ("back", "q", 3, "q#3", "p", 2, "p#2", 120, 30, -90, -90 + ahead["q"] - ahead["p"], 1, "delivered"),
        ("both", "p", 1, "p#1", "q", 1, "q#1", 10, 115, 105, 105 + ahead["p"] - ahead["q"], 2, "duplicated"),
        ("both", "p", 1, "p#1", "r", None, None, 10, None, None, None, 0, "lost"),
        ("both", "p", 1, "p#1", "s", 1, "s#1", 10, 40, 30, 30 + ahead["p"] - ahead["s"], 1, "misdelivered"),
        ("nothing", None, None, None, "s", 2, "s#2", None, 41, None, None, 2, "never_sent"),
        ("untimed", "p", 3, "p#3", "q", 4, "q#4", None, 150, None, None, 1, "delivered"),
    ]


def by_counting(rows):
    """(message, receiver) -> (sender, sent_seq, received_seq, copies, fate), one event after the other."""
    handover = "deliver" if any(row["kind"] == "deliver" for row in rows) else "receive"
    sends = {row["message"]: row for row in rows if row["kind"] == "send"}
    given = {}
    for row in sorted(rows, key=lambda row: row["seq"]):
        if row["kind"] == handover:
            given.setdefault((row["message"], row["process"]), []).append(row["seq"])
    addressed = {(name, to) for name, row in sends.items() for to in row["to"]}
    told = {}
    for name, process in addressed | given.keys():
        seqs, send = given.get((name, process), []), sends.get(name)
        if send is None:
            fate = "never_sent"
        elif (name, process) not in addressed:
            fate = "misdelivered"
        else:
            fate = ("lost", "delivered")[len(seqs)] if len(seqs) < 2 else "duplicated"
        sender = (send["process"], send["seq"]) if send else (None, None)
        told[name, process] = (*sender, seqs[0] if seqs else None, len(seqs), fate)
    return told


def test_random_computations_against_counting(seed):
    rows = wild_rows(seed, 300, computation="c")
    table = traces.table(rows)
    analysis = analyse(table)
    by_computation = {}
    for row in rows:
        by_computation.setdefault(row["computation"], []).append(row)
    expected = {
        (name, *key): value for name, of in by_computation.items() for key, value in by_counting(of).items()
    }
    columns = ("sender", "sent_seq", "received_seq", "copies", "fate")
    found = {
        (row["computation"], row["message"], row["receiver"]): tuple(row[name] for name in columns)
        for row in analysis.table("messages").to_pylist()
    }
    assert found == expected
    assert len(found) == analysis.table("messages").num_rows
    fates = Counter(fate for *_, fate in found.values())
    assert min(fates[fate] for fate in FATES) > 10
    counted = check_delivery(encode(table))
    assert counted.duplicated == sum(copies - 1 for *_, copies, _ in found.values() if copies)
    for fate in ("lost", "misdelivered", "never_sent"):
        assert fates[fate] == getattr(counted, fate)


def test_messages_of_a_computation_cut_into_epochs(spark, tmp_path, seed):
    table = write(wild_rows(seed, 80, prefix="w", skew=300), tmp_path / "trace")
    analyze_path(
        spark, tmp_path / "trace", tmp_path / "out", questions=["messages"], whole_events=1, epoch_events=400
    )
    expected = analyse(table, questions=["messages"]).table("messages")
    found = pq.read_table(tmp_path / "out" / "messages")
    assert found.schema.names == expected.schema.names
    assert traces.rows_of(found, "messages") == traces.rows_of(expected, "messages")
    fates = Counter(expected["fate"].to_pylist())
    assert min(fates[fate] for fate in FATES) > 0
    latencies = zip(expected["latency"].to_pylist(), expected["latency_corrected"].to_pylist(), strict=True)
    assert any(raw != corrected for raw, corrected in latencies)
