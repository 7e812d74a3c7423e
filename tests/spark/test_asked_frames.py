"""Questions about requests and events, asked of frames, have the answers that a trace in memory gives."""

from itertools import pairwise

import pyarrow as pa
import pytest

import happened.spark as hs
from happened import ask, trace
from happened.core.errors import CausalityError
from happened.spark import asked_frames
from happened.trace.importing import import_files
from spark.span_tables import opentelemetry, otlp_file, random_spans, shuffled


@pytest.fixture(autouse=True)
def few_partitions(setting):
    setting("spark.sql.shuffle.partitions", "3")


@pytest.fixture
def both(spark, dice, tmp_path):
    """The same spans as a frame of events, and as a trace in memory."""
    spans = [each | {"service": each["service"] or "web"} for each in random_spans(dice, 12)]
    distinct = [*{each["span"]: each for each in spans}.values()]
    import_files([otlp_file(tmp_path / "spans.json", distinct)], tmp_path / "trace")
    return hs.spans(shuffled(opentelemetry(spark, distinct), dice)).cache(), trace.read(tmp_path / "trace")


REST = {"on_bad": "quarantine"}
"""Some spans name parents that are not there."""


@pytest.mark.filterwarnings("ignore:.*could not be judged")
def test_critical_paths_and_requests(both):
    events, table = both
    for by in ("service", "process"):
        expected = ask.critical_path(table, by=by)
        shares = [
            (row.place, row.requests, row.took, row.saved)
            for row in hs.critical_path(events, by, **REST).collect()
        ]
        assert shares == [tuple(share) for share in expected.shares]
    rows = {row.request: row for row in hs.requests(events, **REST).collect()}
    expected = ask.critical_path(table)
    assert {name: row.took for name, row in rows.items() if row.took is not None} == dict(
        zip(expected.requests, expected.took, strict=True)
    )
    assert len(rows) == len(expected.requests) + expected.untimed
    slowest = rows[expected.slowest.request]
    assert [(step.place, step.took) for step in slowest.path] == [
        (segment.place, segment.took) for segment in expected.slowest.segments
    ]
    one = ask.critical_path(table, expected.slowest.request)
    mine = hs.critical_path(events, request=expected.slowest.request, **REST).collect()
    assert [(row.place, row.took, row.saved) for row in mine] == [
        (s.place, s.took, s.saved) for s in one.shares
    ]


def test_chunks_are_cut_only_where_a_group_of_computations_ends(dice, monkeypatch):
    homes = sorted(dice.choices("abcdef", k=60))
    cuts = sorted(dice.sample(range(61), 8))
    batches = [
        pa.RecordBatch.from_pydict({asked_frames.HOME: pa.array(homes[begin:end], pa.string())})
        for begin, end in pairwise([0, *cuts, 60])
    ]
    monkeypatch.setattr(asked_frames, "EVENTS_PER_BUCKET", 7)
    chunks = [chunk[asked_frames.HOME].to_pylist() for chunk in asked_frames._chunks(iter(batches))]
    assert [home for chunk in chunks for home in chunk] == homes
    assert all(before[-1] != after[0] for before, after in pairwise(chunks)) and len(chunks) > 1


def test_events_of_a_request_in_several_computations_are_one_request(spark):
    rows = [("a", "p", 1, 10, "r"), ("b", "p", 1, 50, "r"), ("c", "q", 1, 7, None), ("c", "q", 2, 9, None)]
    frame = spark.createDataFrame(
        rows, "computation string, process string, seq long, time long, request string"
    )
    events = frame.selectExpr(
        "computation", "process", "seq", "'internal' as kind", "time", "map('trace', request) as attributes"
    )
    found = {row.request: (row.events, row.took) for row in hs.requests(events).collect()}
    assert found == {"r": (2, 40), "c": (2, 2)}


@pytest.mark.filterwarnings("ignore:.*could not be judged")
def test_why_past_future_and_who_influenced_whom(both, dice):
    events, table = both
    history = ask.load(table)
    names = [f"{row['computation']}:{row['process']}#{row['seq']}" for row in table.to_pylist()]
    name = dice.choice(names)
    assert hs.why(events, name, **REST) == ask.why(history, name)
    for question in ("past", "future"):
        expected = getattr(ask, question)(history, name)
        frame = getattr(hs, question)(events, name, **REST)
        assert frame.columns == expected.column_names
        assert [row.asDict() for row in frame.collect()] == expected.to_pylist()
    request = dice.choice(history.requests[1])
    assert hs.influenced(events, request, **REST) == ask.influenced(history, request)
    with pytest.raises(ask.UnknownName, match="nothing in the trace is called 'nobody#1'"):
        hs.why(events, "nobody#1", **REST)


@pytest.mark.filterwarnings("ignore:.*could not be judged")
def test_who_called_whom(both):
    events, _ = both
    callers = {(row.caller, row.callee) for row in hs.dependencies(events, **REST).collect()}
    assert callers and {name for pair in callers for name in pair} <= {"web", "cart", "mail", "db", None}


def test_what_cannot_be_judged_is_refused_or_told_never_left_out_in_silence(spark):
    rows = [("good", 1, 5), ("good", 2, 9), ("gap", 1, 1), ("gap", 3, 2)]
    frame = spark.createDataFrame(rows, "computation string, seq long, time long")
    events = frame.selectExpr("computation", "'p' as process", "seq", "'internal' as kind", "time")
    for question in (hs.requests, hs.critical_path):
        with pytest.raises(hs.NotJudged, match=r"(?s)could not be judged.*computation 'gap'") as refused:
            question(events)
        assert 'renumber"' not in str(refused.value), "an argument that these functions have not"
    with pytest.raises(CausalityError, match="'gap'"):
        hs.past(events, "gap:p#1")
    with pytest.warns(UserWarning, match="computation 'gap'"):
        assert [row.request for row in hs.requests(events, on_bad="quarantine").collect()] == ["good"]
    assert hs.past(events, "good:p#2").count() == 1
    with pytest.raises(CausalityError, match="by can be service, process"):
        hs.critical_path(events, by="label")
    with pytest.raises(CausalityError, match="on_bad can be"):
        hs.requests(events, on_bad="ignore")
