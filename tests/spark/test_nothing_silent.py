"""An input that could not be judged is never an empty answer: it raises, or it is warned of and kept."""

import json
import warnings
from pathlib import Path
from random import Random

import pyarrow.parquet as pq
import pytest
from pyspark.sql import functions as F

import happened.spark as hs
from causality import traces
from happened.causality.analysis import analyse
from happened.core.errors import CausalityError
from happened.spark.pipeline import analyze_path
from happened.spark.rebuild import rebuild
from spark.test_library import frame_of, rows_of

FUNCTIONS = {
    "stamp": "stamps",
    "predecessors": "predecessors",
    "violations": "violations",
    "messages": "messages",
    "necessary": "necessary",
    "skew": "skew",
    "measures": "measures",
    "verify_clocks": "clocks",
    "verify_trackers": "trackers",
}


def early(computation=""):
    """Seven events: r delivers c before a, which was sent causally earlier."""
    events = [
        ("p", 1, "send", "a", ["r"], 10),
        ("p", 2, "send", "b", ["q"], 11),
        ("q", 1, "deliver", "b", None, 12),
        ("q", 2, "send", "c", ["r"], 13),
        ("r", 1, "deliver", "c", None, 14),
        ("r", 2, "deliver", "a", None, 15),
        ("r", 3, "internal", None, None, 16),
    ]
    names = ("process", "seq", "kind", "message", "to", "time")
    return [{"computation": computation} | dict(zip(names, event, strict=True)) for event in events]


def cyclic(computation):
    return [
        {"computation": computation, "process": "p", "seq": 1, "kind": "deliver", "message": "b"},
        {"computation": computation, "process": "p", "seq": 2, "kind": "send", "message": "a", "to": ["q"]},
        {"computation": computation, "process": "q", "seq": 1, "kind": "deliver", "message": "a"},
        {"computation": computation, "process": "q", "seq": 2, "kind": "send", "message": "b", "to": ["p"]},
    ]


@pytest.fixture(scope="module")
def base(spark):
    return frame_of(spark, early()).cache()


def causal(frame):
    return [
        (row["process"], row["early"], row["early_seq"])
        for row in frame.where("order_name = 'causal'").collect()
    ]


def test_a_frame_united_with_itself_says_what_it_says_once(base):
    twice = base.union(base)
    assert causal(hs.violations(twice)) == causal(hs.violations(base)) == [("r", "c", 1)]
    with hs.analyze(twice, questions=["order"], on_bad="raise") as analysis:
        assert analysis.summary()["duplicate_rows"] == 7 and analysis.summary()["events"] == 7


def test_exact_repetitions_across_partitions_leave_every_table_as_it_is(spark, module_seed):
    random = Random(module_seed)
    rows = [row for i in range(6) for row in traces.busy(random, f"c{i}")]
    more = [*rows, *random.choices(rows, k=20)]
    random.shuffle(more)
    with hs.analyze(frame_of(spark, more).repartition(5), on_bad="raise") as analysis:
        expected = analyse(traces.table(rows))
        assert analysis.summary()["duplicate_rows"] == 20
        for name in FUNCTIONS.values():
            assert rows_of(analysis.table(name), name) == traces.rows_of(expected.table(name), name), name


def test_a_filtered_frame_raises_and_names_the_remedy(base):
    with pytest.raises(hs.NotJudged) as raised:
        hs.violations(base.where("time > 12"))
    error = raised.value
    assert (error.rows, error.computations) == (4, 1) and isinstance(error, CausalityError)
    ((computation, reason),) = error.reasons
    assert computation == "" and "1 is absent" in reason
    for part in (
        "4 rows or causes of 1 computation",
        "process 'q', seq 2",
        'gaps="renumber"',
        'on_bad="quarantine"',
    ):
        assert part in str(error), part


BAD = {
    "gap": ([row for row in early("bad") if row["seq"] != 1 or row["process"] != "r"], "is absent"),
    "two different rows": ([*early("bad"), early("bad")[0] | {"to": ["q"]}], "names an event twice"),
    "unknown kind": ([*early("bad")[:-1], early("bad")[-1] | {"kind": "CLIENT"}], "unknown kind CLIENT"),
    "no process": ([*early("bad")[:-1], early("bad")[-1] | {"process": None}], "no process"),
    "cycle": (cyclic("bad"), "has a cycle"),
    "absent cause": (
        [*early("bad")[:-1], early("bad")[-1] | {"causes": [{"process": "p", "seq": 9}]}],
        "names the cause p#9",
    ),
}


@pytest.mark.parametrize("fault", BAD)
def test_what_cannot_be_judged_raises_or_is_warned_of_and_kept(spark, fault):
    rows, reason = BAD[fault]
    frame = frame_of(spark, [*early("good"), *rows])
    with pytest.raises(hs.NotJudged, match=reason) as raised:
        hs.violations(frame)
    assert raised.value.computations == 1 and raised.value.reasons[0][0] == "bad"
    with pytest.warns(UserWarning, match="could not be judged") as warned:
        found = hs.violations(frame, order="causal", on_bad="quarantine")
    assert [each.filename for each in warned] == [__file__]
    assert "good" in {row["computation"] for row in found.collect()}
    assert reason in found.quarantine.first()["reason"]
    assert hs.quarantine(found).collect() == found.quarantine.collect()


@pytest.mark.parametrize("function", FUNCTIONS)
def test_every_function_raises_and_renumbers_if_told_to(base, function):
    window = base.where("time <> 11")
    ask = getattr(hs, function)
    with pytest.raises(hs.NotJudged, match="is absent"):
        ask(base.where("time > 12"))
    kept = [row for row in early() if row["time"] != 11]
    expected = analyse(traces.table(kept), gaps="renumber").table(FUNCTIONS[function])
    found = ask(window, gaps="renumber")
    assert rows_of(found, FUNCTIONS[function]) == traces.rows_of(expected, FUNCTIONS[function])
    assert found.quarantine.count() == 0


def test_a_window_keeps_the_seqs_of_the_frame_and_judges_nothing_sent_outside(base):
    window = base.where("time > 12")
    stamps = hs.stamp(window, gaps="renumber")
    assert stamps.join(window, ["process", "seq"]).count() == 4
    fates = {row["message"]: row["fate"] for row in hs.messages(window, gaps="renumber").collect()}
    assert fates == {"a": "sent_outside", "c": "delivered"}
    assert hs.violations(window, gaps="renumber").count() == 0
    inside = base.where("time <> 16").withColumn("seq", F.col("seq") * 10)
    assert causal(hs.violations(inside, gaps="renumber")) == [("r", "c", 10)]
    with hs.analyze(window, gaps="renumber", questions=["order"]) as analysis:
        summary = analysis.summary()
        assert (summary["sent_outside"], summary["causes_outside"], summary["never_sent"]) == (1, 0, 0)
    with pytest.raises(CausalityError, match="complete"):
        hs.analyze(window, gaps="renumber", complete=True)
    with pytest.raises(CausalityError, match="gaps can be"):
        hs.violations(window, gaps="ignore")
    with pytest.raises(CausalityError, match="on_bad can be"):
        hs.violations(window, on_bad="ignore")


def test_a_window_that_would_be_cut_into_epochs_is_refused(base):
    with pytest.raises(CausalityError, match="fit a task"):
        hs.analyze(base.where("time > 12"), gaps="renumber", questions=["order"], whole_events=2)


def test_a_table_of_spans_raises_instead_of_having_no_predecessors(spark):
    spans = spark.createDataFrame(
        [("t1", "s1", None, "web", "SERVER", 10), ("t1", "s2", "s1", "db", "CLIENT", 12)],
        "traceId string, spanId string, parentSpanId string, service string, kind string, start long",
    )
    with pytest.raises(CausalityError, match="process"):
        hs.predecessors(spans)
    columns = {"computation": "traceId", "process": "service", "seq": F.lit(1).cast("long"), "time": "start"}
    with pytest.raises(hs.NotJudged, match="unknown kind"):
        hs.predecessors(spans, columns=columns)


def test_no_events_at_all_are_judged_and_rows_that_are_none_are_not(base):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert hs.violations(base.where("false")).count() == 0
        assert hs.analyze(base.where("false"), questions=["order"]).summary()["events"] == 0
    with pytest.raises(hs.NotJudged, match="7 rows"):
        hs.violations(base.withColumn("kind", F.lit("nothing")))


def test_an_analysis_warns_and_says_so_wherever_it_is_looked_at(spark):
    frame = frame_of(spark, [*early("good"), *BAD["gap"][0]])
    with pytest.warns(UserWarning, match="6 rows") as warned:
        analysis = hs.analyze(frame)
    assert [each.filename for each in warned] == [__file__]
    assert "without 6 quarantined rows" in repr(analysis) and analysis.summary()["quarantined"] == 6
    assert analysis.quarantine.count() == hs.quarantine(analysis).count() == 1
    assert hs.quarantine(analysis.skew).collect() == analysis.quarantine.collect()
    report = analysis.report()
    assert "6 rows are quarantined and not judged" in report
    assert "No rows; but 6 rows were quarantined and not judged." in report
    analysis.close()
    with pytest.raises(hs.NotJudged, match="6 rows or causes of 1 computation"):
        hs.analyze(frame, on_bad="raise")


def test_frames_made_from_an_answer_do_not_know_what_was_quarantined(base):
    found = hs.violations(base)
    for other in (found.where("true"), base):
        with pytest.raises(CausalityError, match="made from it"):
            hs.quarantine(other)


def test_what_was_raised_leaves_no_files_and_can_be_pickled(base, tmp_path):
    import pickle

    with pytest.raises(hs.NotJudged) as raised:
        hs.violations(base.where("time > 12"), io="direct", work=tmp_path)
    assert not [*tmp_path.iterdir()]
    again = pickle.loads(pickle.dumps(raised.value))
    assert str(again) == str(raised.value) and again.reasons == raised.value.reasons


def test_the_commands_say_what_was_not_judged_and_judge_windows_if_told_to(command, capfd, tmp_path):
    rows = early()
    whole, window = tmp_path / "whole.parquet", tmp_path / "window.parquet"
    pq.write_table(traces.table(rows * 2), whole)
    pq.write_table(traces.table([row for row in rows if row["time"] > 12]), window)
    assert _said(command, capfd, "check", whole)[0] == 1
    code, document, _ = _said(command, capfd, "check", "--json", whole)
    assert (code, document["duplicate_rows"], document["quarantined"]) == (1, 7, 0)
    code, document, told = _said(command, capfd, "check", "--json", window)
    assert (code, document["holds"], document["quarantined"]) == (2, None, 4)
    assert "1 is absent" in document["quarantine"][0] and "--gaps renumber" in told and "4 rows" in told
    code, document, told = _said(command, capfd, "check", "--json", "--gaps", "renumber", window)
    assert (code, document["holds"], document["sent_outside"], told) == (0, True, 1, "")
    assert "1 delivery of a message sent outside the window was not judged" in document["sentence"]
    for name, only in (("all", ()), ("order", ("--only", "order"))):
        out = tmp_path / name
        words = ("analyze", window, *only)
        code, summary, told = _said(command, capfd, *words, "--out", out / "bad", "--json")
        assert (code, summary["quarantined"]) == (2, 4) and "--gaps renumber" in told
        code, summary, told = _said(
            command, capfd, *words, "--out", out / "good", "--json", "--gaps", "renumber"
        )
        assert (code, summary["sent_outside"], summary["quarantined"]) == (0, 1, 0)
    code, summary, told = _said(
        command, capfd, "analyze", "--local", "--report", tmp_path / "r.html", "--json", window
    )
    assert code == 2 and "--gaps renumber" in told
    assert "No rows; but 4 rows were quarantined" in Path(tmp_path / "r.html").read_text()
    code, _, _ = _said(
        command,
        capfd,
        "analyze",
        "--local",
        "--report",
        tmp_path / "w.html",
        "--json",
        "--gaps",
        "renumber",
        window,
    )
    assert code == 0 and "sent outside the window" in (tmp_path / "w.html").read_text()
    assert _said(command, capfd, "check", "--necessary", "--gaps", "renumber", window)[0] == 2
    assert _said(command, capfd, "check", "--complete", "--gaps", "renumber", window)[0] == 2


def test_vectors_are_not_rebuilt_from_the_stamps_of_a_window(spark, tmp_path):
    pq.write_table(traces.table([row for row in early() if row["time"] > 12]), tmp_path / "window.parquet")
    options = {"gaps": "renumber", "questions": ["stamp"], "timestamps": "sparse"}
    analyze_path(spark, tmp_path / "window.parquet", tmp_path / "sparse", **options)
    with pytest.raises(CausalityError, match="of a window: 'q'"):
        rebuild(spark, tmp_path / "sparse", tmp_path / "full")


def _said(command, capfd, *arguments):
    capfd.readouterr()
    code = command([*map(str, arguments)])
    out, told = capfd.readouterr()
    told = "\n".join(line for line in told.splitlines() if "WARN" not in line)
    return code, json.loads(out) if "--json" in arguments and out else out, told
