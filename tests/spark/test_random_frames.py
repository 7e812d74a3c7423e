"""Random frames with planted defects: of each computation the oracle's answer, or a refusal that names it.

Hundreds of small computations share a frame, so that one call judges them all. `spark/random_frames.py` has
the computations and the oracle.
"""

import warnings
from collections import Counter
from itertools import pairwise
from random import Random

import pyarrow.parquet as pq
import pytest
from pyspark.sql import functions as F

import happened.spark as hs
from happened.spark.live.live_job import committed
from spark.random_frames import computations, expect, sound

SCHEMA = """computation string, process string, seq long, kind string, message string, to array<string>,
    time long, relevant boolean, causes array<struct<process: string, seq: long>>, label string, source int"""
COLUMNS = ("computation", "process", "seq", "kind", "message", "to", "time", "relevant", "causes", "label")
QUESTIONS = ["order", "stamp", "predecessors", "messages"]
WHOLE, CUT = {}, {"whole_events": 1, "epoch_events": 5}
COUNTED_APART = ("duplicate_rows", "quarantined")
"""Totals that may count an absent cause of a refused computation, or a repeated row of it, or not."""
MODES = {
    "whole, through Spark": WHOLE,
    "whole, direct": WHOLE | {"io": "direct"},
    "cut, through Spark": CUT,
    "cut, direct": CUT | {"io": "direct"},
}
WHOLE_MODES = [mode for mode in MODES if mode.startswith("whole")]


def frame_of(spark, random, made):
    """One frame of these rows: several sources, of different types and columns, in any order.

    A computation without a name may be null. The column `source` is none of a trace's: rows that differ in it
    alone are repetitions.
    """
    sources = [[], [], []]
    unnamed = random.choice(["", None])
    for rows in made.values():
        for row in rows:
            name = row["computation"] or unnamed
            plain = all(row[column] is None for column in ("relevant", "causes", "label", "to"))
            small = row["seq"] is not None and abs(row["seq"]) < 2**31
            source = sources[random.choice([1, 2]) if plain and small else 0]
            source.append((name, *(row[column] for column in COLUMNS[1:]), random.randint(0, 9)))
    parts = []
    for rows, seq in zip(sources, ("long", "int", "decimal(12,0)"), strict=True):
        random.shuffle(rows)
        part = spark.createDataFrame(rows, SCHEMA).withColumn("seq", F.col("seq").cast(seq))
        parts.append(part.drop("relevant", "causes", "label", "to") if seq != "long" else part)
    frame = parts[0]
    for part in parts[1:]:
        frame = frame.unionByName(part, allowMissingColumns=True)
    return frame.repartition(random.randint(1, 8))


def answers(frame, **options):
    """What `hs.analyze` answers, as rows by table, with its summary."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with hs.analyze(frame, questions=QUESTIONS, **options) as analysis:
            return {name: analysis.table(name).collect() for name in analysis.tables} | {
                "summary": analysis.summary()
            }


def by_computation(rows):
    found = {}
    for row in rows:
        found.setdefault(row["computation"], []).append(row)
    return found


def faults(found, made, streamed=False):
    """Where the answers differ from what the oracle expects, by computation.

    A stream has told of a computation before it finds that it cannot be judged, and has no fates of messages.
    """
    tables = {name: by_computation(rows) for name, rows in found.items() if name != "summary"}
    expected = {name: expect(rows, streamed) for name, rows in made.items()}
    wrong = {
        name: [f"unknown computation {name!r}"]
        for rows in tables.values()
        for name in rows
        if name not in made
    }
    for name, wanted in expected.items():
        said = {table: rows.get(name, []) for table, rows in tables.items()}
        complaints = [*_refusals(said, wanted, streamed)]
        if not complaints and not wanted.refused:
            complaints = [*_plain_answers(said, wanted), *_orders(said, wanted)]
        if complaints:
            wrong[name] = complaints
    return wrong if streamed else wrong | _wrong_totals(found["summary"], expected)


def _wrong_totals(summary, expected):
    wrong = {}
    judged = [wanted for wanted in expected.values() if not wanted.refused]
    totals = {
        "computations": sum(bool(wanted.stamps) for wanted in judged),
        "events": sum(len(wanted.stamps) for wanted in judged),
        "causal_violations": sum(key[0] == "causal" for wanted in judged for key in wanted.violations),
        "fifo_violations": sum(key[0] == "fifo" for wanted in judged for key in wanted.violations),
        "lost_causes": sum(key[0] == "causal" for wanted in judged for key in wanted.lost),
        "reduction_edges": sum(len(wanted.predecessors) for wanted in judged),
    }
    for name, value in totals.items():
        if name in summary and summary[name] != value:
            wrong[f"summary {name}"] = [f"{summary[name]}, expected {value}"]
    least = sum(wanted.duplicates for wanted in judged)
    most = sum(wanted.duplicates for wanted in expected.values())
    if not least <= summary["duplicate_rows"] <= most:
        wrong["summary duplicate_rows"] = [f"{summary['duplicate_rows']}, expected {least}..{most}"]
    return wrong


def _refusals(said, wanted, streamed):
    reasons = [row["reason"] for row in said["quarantine"]]
    if wanted.refused and not reasons:
        yield "refused without a reason"
    if not streamed and wanted.refused and any(rows for table, rows in said.items() if table != "quarantine"):
        yield "an answer about a computation that cannot be judged"
    if not wanted.refused and len(reasons) != wanted.named:
        yield f"{wanted.named} rows to be quarantined, but {reasons}"
    if any(not reason for reason in reasons):
        yield "quarantined without a reason"


def _plain_answers(said, wanted):
    names = {row["p"]: row["process"] for row in said["processes"]}
    stamps = {
        (row["process"], row["seq"]): frozenset(
            (names[p], count) for p, count in enumerate(row["clock"]) if count
        )
        for row in said["stamps"]
    }
    if stamps != wanted.stamps or len(said["stamps"]) != len(stamps):
        yield f"stamps {stamps}, expected {wanted.stamps}"
    causes = [
        ((row["process"], row["seq"]), (row["cause_process"], row["cause_seq"]))
        for row in said["predecessors"]
    ]
    if Counter(causes) != Counter(wanted.predecessors):
        yield f"predecessors {causes}, expected {wanted.predecessors}"
    fates = [
        tuple(
            row[column]
            for column in ("message", "sender", "sent_seq", "receiver", "received_seq", "copies", "fate")
        )
        for row in said.get("messages", ())
    ]
    if "messages" in said and Counter(fates) != Counter(wanted.messages):
        yield f"messages {fates}, expected {wanted.messages}"


def _orders(said, wanted):
    early = Counter()
    for row in said["violations"]:
        if row["order_name"] == "total":
            continue
        key = (row["order_name"], row["process"], row["early"], row["early_seq"])
        early[key] += 1
        if (row["overtaken"], row["overtaken_seq"]) not in wanted.violations.get(key, ()):
            yield f"no witness: {row}"
        elif not _leads(row["path"], row["overtaken"], row["early"], wanted.before):
            yield f"no path: {row}"
    if early != Counter([*wanted.violations]):
        yield f"early deliveries {early}, expected {wanted.violations}"
    lost = Counter((row["order_name"], row["process"], row["lost"]) for row in said["lost_causes"])
    if lost != Counter(wanted.lost):
        yield f"lost causes {lost}, expected {wanted.lost}"


def _leads(path, first, last, before):
    steps = [(step["process"], step["seq"]) for step in path]
    ends = (path[0]["message"], path[-1]["message"]) == (first, last)
    return ends and all(pair in before for pair in pairwise(steps))


def first_of(wrong):
    return dict([*wrong.items()][:3])


def tables_of(found):
    """What every mode must answer alike: all but epochs, the choice of witnesses and the words of reasons."""
    return {
        "stamps": Counter((r["computation"], r["event"], tuple(r["clock"])) for r in found["stamps"]),
        "total": Counter(
            (r["computation"], r["process"], r["early_event"], r["overtaken_event"])
            for r in found["violations"]
            if r["order_name"] == "total"
        ),
        "quarantine": {r["computation"] for r in found["quarantine"]},
        "summary": {k: v for k, v in found["summary"].items() if k not in COUNTED_APART},
    }


def try_modes(spark, seed, count, modes, **options):
    random = Random(seed)
    made = computations(random, count)
    frame = frame_of(spark, random, made).cache()
    told = {}
    for mode in modes:
        found = answers(frame, **MODES[mode], **(options if "direct" in mode else {}))
        wrong = faults(found, made)
        assert not wrong, f"{mode}: {len(wrong)} of {len(made)}, such as {first_of(wrong)}"
        told[mode] = tables_of(found)
    for mode in modes[1:]:
        assert told[mode] == told[modes[0]], f"{mode} differs from {modes[0]}"
    frame.unpersist()


def test_some_random_frames_are_judged_or_refused_by_name(spark, seed):
    try_modes(spark, seed, 60, WHOLE_MODES)


@pytest.mark.slow
@pytest.mark.parametrize("round_", range(7))
def test_random_frames_are_judged_or_refused_by_name(spark, seed, round_):
    try_modes(spark, seed + round_, 300, WHOLE_MODES)


@pytest.mark.slow
@pytest.mark.parametrize("round_", range(20))  # each computation is a job of some passes: minutes
def test_random_frames_cut_into_epochs(spark, seed, round_):
    try_modes(spark, seed + round_, 100, [*MODES])


ELSEWHERE = """
# On another session, which needs a process of its own.
import sys
from happened.spark.session import session
from spark.test_random_frames import MODES, WHOLE_MODES, try_modes

url, seed, work = sys.argv[1:]
spark = session(url)
try_modes(spark, int(seed), 300, WHOLE_MODES, work=work)
try_modes(spark, int(seed) + 1, 40, [*MODES], work=work)
"""


def streamed_answers(command, spark, random, made, folder):
    """What `happened stream` answers about these rows, which come in several batches in any order."""
    frame = frame_of(spark, random, made).withColumn("seq", F.col("seq").cast("long")).drop("source")
    frame.write.parquet(str(folder / "trace"))
    least = min(part.stat().st_size for part in (folder / "trace").glob("*.parquet"))
    words = ["--batch-bytes", str(random.choice([least, 10 * least]))]
    assert command(["stream", str(folder / "trace"), "--out", str(folder / "out"), *words]) in (0, 1, 2)
    tables = ("stamps", "processes", "predecessors", "violations", "lost_causes", "quarantine")
    return {
        name: [row for part in committed(folder / "out", name) for row in pq.read_table(part).to_pylist()]
        for name in tables
    }


def try_stream(command, spark, seed, count, folder):
    random = Random(seed)
    made = computations(random, count)
    wrong = faults(streamed_answers(command, spark, random, made, folder), made, streamed=True)
    assert not wrong, f"{len(wrong)} of {len(made)}, such as {first_of(wrong)}"


def test_some_random_frames_are_streamed(command, spark, tmp_path, seed):
    try_stream(command, spark, seed, 60, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("round_", range(7))
def test_random_frames_are_streamed(command, spark, tmp_path, seed, round_):
    try_stream(command, spark, seed + round_, 300, tmp_path)


def refusal(ask, frame):
    with pytest.raises(hs.NotJudged) as caught:
        ask(frame)
    return caught.value


@pytest.mark.slow
def test_every_function_refuses_what_could_not_be_judged(spark, seed):
    random = Random(seed)
    made = computations(random, 40)
    expected = {name: expect(rows) for name, rows in made.items()}
    bad = sorted(name for name, wanted in expected.items() if wanted.refused or wanted.named)
    frame = frame_of(spark, random, made).cache()
    for ask in (hs.violations, hs.stamp, hs.predecessors, hs.messages):
        raised = refusal(ask, frame)
        assert raised.computations == len(bad)
        assert {name for name, _ in raised.reasons} <= {*bad} and raised.reasons and str(raised)
        with pytest.warns(UserWarning) as caught:
            rest = ask(frame, on_bad="quarantine")
        assert len(caught) == 1
        assert sorted({row["computation"] for row in rest.quarantine.collect()}) == bad
    frame.unpersist()


def window_faults(found, made):
    """Early deliveries of a window that are none of the whole trace, and computations it does not judge."""
    expected = {name: expect(rows) for name, rows in made.items()}
    for row in found["quarantine"]:
        yield f"quarantined: {row}"
    for row in found["violations"]:
        key = (row["order_name"], row["process"], row["early"], row["early_seq"])
        if row["order_name"] == "total":
            continue
        if (row["overtaken"], row["overtaken_seq"]) not in expected[row["computation"]].violations.get(
            key, ()
        ):
            yield f"not so in the whole trace: {row}"
    for row in found["predecessors"]:
        pair = ((row["cause_process"], row["cause_seq"]), (row["process"], row["seq"]))
        if pair not in expected[row["computation"]].before:
            yield f"not before it in the whole trace: {row}"


def keeps_first_deliveries(rows, window):
    """Whether a window may be judged, by the two conditions that docs/pipeline.md states."""
    kept = {(row["process"], row["seq"]) for row in window}
    arrivals = [row for row in rows if row["kind"] == "deliver"]
    if arrivals and not any(row["kind"] == "deliver" for row in window):
        return not any(row["kind"] == "receive" for row in window)
    stands_in = "deliver" if arrivals else "receive"
    seen = {}
    for row in sorted(rows, key=lambda row: row["seq"]):
        if row["kind"] == stands_in:
            seen.setdefault((row["message"], row["process"]), []).append((row["process"], row["seq"]))
    return all(at[0] in kept or not kept & {*at} for at in seen.values())


@pytest.mark.slow
@pytest.mark.parametrize("io", ["spark", "direct"])
def test_what_a_window_reports_holds_of_the_whole_trace(spark, seed, io):
    random = Random(seed)
    whole, windows = {}, {}
    for number in range(400):
        rows = sound(random, f"c{number}", most=24)
        low, high = sorted(random.choices(range(40), k=2))
        window = [row for row in rows if row["time"] is not None and low <= row["time"] <= high]
        if random.random() < 0.3:
            window = [row for row in rows if random.random() < 0.7]
        if window and keeps_first_deliveries(rows, window):
            whole[f"c{number}"], windows[f"c{number}"] = rows, window
    found = answers(frame_of(spark, random, windows), gaps="renumber", io=io)
    assert not [*window_faults(found, whole)][:3]
    events = {(row["computation"], row["process"], row["seq"]) for row in found["stamps"]}
    assert events == {(name, row["process"], row["seq"]) for name, rows in windows.items() for row in rows}
