"""Frames of the tables people have are read as `happened import` reads the same records in files."""

import json

import pytest
from pyspark.sql import functions as F

import happened.spark as hs
from happened.core.errors import TraceFormatError
from happened.spark.draft_frames import REPEATED
from happened.trace.readers import Options
from happened.trace.readers.database_histories import UNKNOWN
from spark.span_tables import (
    contents,
    of_files,
    of_frame,
    opentelemetry,
    otlp_file,
    random_spans,
    same_as_import,
    shuffled,
    tempo,
)


@pytest.fixture(autouse=True)
def few_partitions(setting):
    setting("spark.sql.shuffle.partitions", "3")


def nested(spark, path):
    """The exporter's own file, as Spark reads JSON lines."""
    return spark.read.json(str(path))


@pytest.mark.parametrize("shape", ["opentelemetry", "nested", "tempo"])
def test_spans_of_opentelemetry_and_tempo_as_a_frame_are_the_spans_of_the_file(shape, spark, dice, tmp_path):
    spans = random_spans(dice, 25)
    path = otlp_file(tmp_path / "spans.json", spans)
    frames = {
        "opentelemetry": lambda: opentelemetry(spark, spans),
        "nested": lambda: nested(spark, path),
        "tempo": lambda: tempo(spark, spans),
    }
    summary = same_as_import(hs.spans(shuffled(frames[shape](), dice)), [path], tmp_path / "out")
    assert summary["computations"] < 25 and summary["quarantined"] >= 4


def test_a_record_without_a_service_that_comes_twice_is_reported_as_in_files(spark, dice, tmp_path):
    spans = [each for each in random_spans(dice, 3) if each["service"]]
    nameless = spans[0] | {"service": None, "span": "f" * 16}
    path = otlp_file(tmp_path / "spans.json", [*spans, nameless, nameless])
    same_as_import(hs.spans(nested(spark, path)), [path], tmp_path / "out")


def test_spans_of_jaeger_in_rows_of_spans_and_in_rows_of_traces(spark, dice, tmp_path):
    spans = [each | {"start": each["start"] or 5000} for each in random_spans(dice, 20)]
    references = [
        [{"refType": "CHILD_OF", "traceID": each["trace"], "spanID": each["parent"]}]
        * (each["parent"] is not None)
        + [
            {"refType": "FOLLOWS_FROM", "traceID": link["trace"], "spanID": link["span"]}
            for link in each["links"]
        ]
        for each in spans
    ]
    records = [
        {
            "traceID": each["trace"],
            "spanID": each["span"],
            "operationName": each["name"],
            "references": of,
            "startTime": each["start"] // 1000,
            "duration": dice.randint(0, 900),
            "tags": [
                {"key": key, "type": "string", "value": value} for key, value in each["attributes"].items()
            ],
            "process": {"serviceName": each["service"] or "", "tags": [{"key": "ip", "value": "10.0.0.1"}]},
        }
        for each, of in zip(spans, references, strict=True)
    ]
    path = tmp_path / "jaeger.json"
    path.write_text(json.dumps({"data": [{"traceID": "all", "spans": records}]}))
    lines = tmp_path / "lines.json"
    lines.write_text("\n".join(map(json.dumps, records)))
    same_as_import(
        hs.spans(shuffled(spark.read.json(str(lines)), dice)), [path], tmp_path / "out", format="jaeger"
    )
    whole = spark.read.json(str(path), multiLine=True).select(F.explode("data").alias("of")).select("of.*")
    same_as_import(hs.spans(whole), [path], tmp_path / "again", format="jaeger")
    flat = spark.read.json(str(lines)).selectExpr(
        "traceID as trace_id", "spanID as span_id", "operationName as operation_name", "references",
        "timestamp_micros(startTime) as start_time", "duration", "map_from_entries(transform(tags, t -> "
        "struct(t.key, t.value))) as tags", "to_json(process) as process",
    )  # fmt: skip
    same_as_import(hs.spans(shuffled(flat, dice)), [path], tmp_path / "flat", format="jaeger")


def test_spans_of_zipkin(spark, dice, tmp_path):
    records = [
        {
            "traceId": each["trace"],
            "id": each["span"],
            **({"parentId": each["parent"]} if each["parent"] else {}),
            "name": each["name"],
            "kind": each["kind"].removeprefix("SPAN_KIND_"),
            **({"timestamp": each["start"] // 1000} if each["start"] else {}),
            "duration": dice.randint(1, 900),
            "localEndpoint": {"serviceName": each["service"], "ipv4": "10.0.0.2"} if each["service"] else {},
            "tags": each["attributes"],
        }
        for each in random_spans(dice, 20)
    ]
    path = tmp_path / "zipkin.json"
    path.write_text(json.dumps(records))
    frame = spark.read.json(str(path), multiLine=True)
    same_as_import(hs.spans(shuffled(frame, dice)), [path], tmp_path / "out", format="zipkin")


def test_columns_of_other_names_are_mapped_by_name_path_or_expression(spark, dice, tmp_path):
    spans = random_spans(dice, 12)
    path = otlp_file(tmp_path / "spans.json", spans)
    own = opentelemetry(spark, spans).selectExpr(
        "named_struct('t', trace_id, 's', span_id) as ids", "coalesce(parent_span_id, 'none') as up",
        "name as operation", "kind", "start_time_unix_nano as began", "end_time_unix_nano as ended", "links",
        "attributes as facts", "resource.attributes['service.name'] as who", "status.code as state",
    )  # fmt: skip
    columns = {
        "trace": "ids.t",
        "span": "ids.s",
        "parent": F.expr("nullif(up, 'none')"),
        "label": "operation",
        "start": "began",
        "end": "ended",
        "attributes": "facts",
        "service": "who",
        "status": "state",
    }
    same_as_import(hs.spans(own, columns), [path], tmp_path / "out")
    with pytest.raises(
        TraceFormatError, match="field 'parent': is mapped to 'above', which the frame does not have"
    ):
        hs.spans(own, {**columns, "parent": "above"})
    with pytest.raises(TraceFormatError, match="field 'colour': is not a column of spans of opentelemetry"):
        hs.spans(own, {**columns, "colour": "kind"})
    with pytest.raises(TraceFormatError, match=r"does not look like spans .* it has a, b"):
        hs.spans(spark.sql("select 1 as a, 2 as b"))
    with pytest.raises(TraceFormatError, match="'zipper' is no preset"):
        hs.spans(own, columns, preset="zipper")


def test_a_row_that_is_no_span_is_quarantined_and_the_analysis_counts_it(spark):
    rows = [("t", "a", None, "web", "1"), ("t", None, None, "web", "1"), ("t", "b", "a", "web", "soon")]
    names = ("traceId", "spanId", "parentSpanId", "serviceName", "startTimeUnixNano")
    frame = spark.createDataFrame(rows, ", ".join(f"{name} string" for name in names))
    events = hs.spans(frame)
    assert sorted(row.field for row in events.quarantine.collect()) == ["spanId", "startTimeUnixNano"]
    analysis = hs.analyze(events, questions=["order"])
    assert (analysis.summary()["events"], analysis.summary()["quarantined"]) == (2, 2)
    assert any("not nanoseconds" in row.reason for row in analysis.quarantine.collect())
    analysis.close()


def test_what_names_a_record_that_is_not_there_is_not_judged_in_silence(spark, dice):
    spans = [each for each in random_spans(dice, 12) if each["parent"]]  # the roots were filtered out
    events = hs.spans(opentelemetry(spark, spans))
    with pytest.raises(hs.NotJudged, match="is not among the records read") as caught:
        hs.violations(events)
    assert {name for name, _ in caught.value.reasons} <= {"", *(each["trace"] for each in spans)}
    with pytest.warns(UserWarning, match="could not be judged"):
        left_out = hs.violations(events, on_bad="quarantine").quarantine.count()
    assert left_out == events.quarantine.where(F.col("reason") != REPEATED).count() > 0
    cycle = spark.sql("select * from values ('a', array('b')), ('b', array('a')) as t(id, parents)")
    with pytest.raises(hs.NotJudged, match="in a circle"):
        hs.predecessors(hs.dag(cycle))


def test_a_record_that_is_there_twice_is_taken_once(spark, dice):
    distinct = {each["span"]: each for each in random_spans(dice, 6)}.values()
    frame = opentelemetry(spark, [*distinct])
    once, twice = hs.spans(frame), hs.spans(shuffled(frame.union(frame), dice))
    assert of_frame(twice) == of_frame(once)
    told = [row.reason for row in twice.quarantine.collect() if row.reason == REPEATED]
    assert len(told) == sum(each["service"] is not None for each in distinct)
    commits = spark.sql("select * from values ('a', array()), ('b', array('a')) as t(id, parents)")
    assert hs.predecessors(hs.dag(commits.union(commits))).count() == 1


def test_a_frame_of_commits_is_the_graph_of_the_file(spark, dice, tmp_path):
    commits = []
    for number in range(60):
        parents = dice.sample([each["id"] for each in commits], min(number, dice.choice((0, 1, 1, 1, 2))))
        commits.append(
            {"id": f"c{number}", "parents": parents, "agent": dice.choice(("ada", "bob")), "size": number}
        )
    commits[7]["parents"] = [*commits[7]["parents"], "elsewhere"]
    commits += [{"id": None, "parents": [], "agent": "ada", "size": 0}, {**commits[3], "size": 1}]
    path = tmp_path / "commits.json"
    path.write_text("\n".join(map(json.dumps, commits)))
    frame = spark.createDataFrame(
        [(each["id"], each["parents"], each["agent"], each["size"]) for each in commits],
        "hash string, parents array<string>, agent string, size long",
    )
    events = hs.dag(shuffled(frame, dice), {"id": "hash", "author": "agent"})

    def graph(rows):
        name = {(row["process"], row["seq"]): row["label"] for row in rows}
        return {
            row["label"]: sorted(name[cause["process"], cause["seq"]] for cause in row["causes"] or ())
            for row in rows
        }

    rows, left_out, _ = of_files([path], tmp_path / "out", format="dag")
    found = of_frame(events)
    assert graph(found) == graph(rows) and len(found) == 60
    assert {row["process"].partition("/")[0] for row in found} == {"ada", "bob"}
    assert sorted(row.field for row in events.quarantine.collect()) == sorted(
        row["field"] for row in left_out
    )
    assert sorted(row.field for row in events.quarantine.collect()) == ["id", "id", "parents"]


def messages_of(dice, count):
    """A log of processes that send to one another, with positions that have gaps."""
    rows, place = [], dict.fromkeys("abc", 0)
    for number in range(count):
        process = dice.choice("abc")
        sent = [row["message"] for row in rows if row["kind"] == "sent" and row["process"] != process]
        got = {row["message"] for row in rows if row["kind"] == "handle" and row["process"] == process}
        waiting = [message for message in sent if message not in got]
        place[process] += dice.randint(1, 3)
        row = {"process": process, "seq": place[process], "kind": "sent", "message": f"m{number}"}
        if waiting and dice.random() < 0.6:
            row |= {"kind": "handle", "message": dice.choice(waiting)}
        rows.append(row | {"time": 100 - number, "weather": dice.choice(("rain", "sun"))})
    return rows


def test_a_frame_of_messages_is_ordered_by_position_never_by_time(spark, dice, tmp_path):
    rows = messages_of(dice, 80)
    path = tmp_path / "log.json"
    path.write_text("\n".join(map(json.dumps, [*rows, {"seq": 5, "kind": "sent", "message": "nobody's"}])))
    options = Options(map="process=process,seq=seq,kind=kind,message=message,time=time")
    schema = "process string, seq long, kind string, message string, time long, weather string"
    frame = spark.createDataFrame(
        [*(tuple(row.values()) for row in rows), (None, 5, "sent", "x", 1, "")], schema
    )
    for events in (
        hs.log(shuffled(frame, dice)),
        hs.log(frame.withColumnRenamed("seq", "n"), {"position": "n"}),
    ):
        expected, _, _ = of_files([path], tmp_path / f"out-{len(list(tmp_path.iterdir()))}", options=options)
        for row in expected:
            row["computation"] = ""  # of a file, its name
        assert of_frame(events) == contents(expected)
        assert [row.reason for row in events.quarantine.collect()] == ["has no process, which is the process"]
    with pytest.raises(
        TraceFormatError, match=r"field 'position': no such column.*a time is taken only if you name"
    ):
        hs.log(frame.drop("seq"))
    by_time = hs.log(frame.drop("seq"), {"position": "time"})
    first = by_time.where("process = 'a'").orderBy("seq").first()
    assert first.time == min(row["time"] for row in rows if row["process"] == "a")


def test_records_that_spark_read_from_kafka_are_ordered_by_offset_within_a_partition(spark, dice):
    rows = messages_of(dice, 60)
    lost = {"process": "d", "kind": "sent", "message": "late", "time": 1}
    records = [(row, "events", "abc".index(row["process"]), 100 + number) for number, row in enumerate(rows)]
    records += [(lost, "events", 1, 7), (lost | {"message": "soon"}, "other", 1, 8)]
    frame = spark.createDataFrame(
        [
            (b"key", b"{}", topic, partition, offset, row["time"],
             [(name, row[name].encode()) for name in ("process", "kind", "message")])
            for row, topic, partition, offset in records
        ],
        "key binary, value binary, topic string, partition int, offset long, timestamp long, "
        "headers array<struct<key: string, value: binary>>",
    ).withColumn("timestamp", F.timestamp_seconds("timestamp"))  # fmt: skip
    events = hs.log(shuffled(frame, dice))
    schema = "process string, seq long, kind string, message string"
    expected = hs.log(spark.createDataFrame([tuple(row.values())[:4] for row in rows], schema))
    plain = ("process", "seq", "kind", "message", "to")
    assert [[row[name] for name in plain] for row in of_frame(events)] == [
        [row[name] for name in plain] for row in of_frame(expected)
    ]
    reasons = [row.reason for row in events.quarantine.collect()]
    assert len(reasons) == 2 and all("several partitions (events/1, other/1)" in reason for reason in reasons)


def test_a_frame_of_transactions_is_the_history_of_the_file(spark, dice, tmp_path):
    sessions = [
        [
            [
                (dice.choice("rw"), f"k{dice.randint(0, 3)}", str(dice.randint(0, 9)))
                for _ in range(dice.randint(1, 3))
            ]
            for _ in range(dice.randint(1, 6))
        ]
        for _ in range(4)
    ]
    path = tmp_path / "history.txt"
    path.write_text(
        "=====\n".join(
            "-----\n".join("".join(f"{' '.join(step)}\n" for step in of) for of in session)
            for session in sessions
        )
    )
    rows = [
        (number + 1, 10 * place, of)
        for number, session in enumerate(sessions)
        for place, of in enumerate(session)
    ]
    frame = spark.createDataFrame(
        rows, "session int, transaction int, operations array<struct<a: string, b: string, c: string>>"
    )
    as_text = frame.selectExpr(
        "session", "transaction", "transform(operations, o -> concat_ws(' ', o.a, o.b, o.c)) as steps"
    )

    def bare(events):
        return [{**row, "computation": "", "attributes": None} for row in events]

    expected, _, _ = of_files([path], tmp_path / "out", format="awdit")
    assert bare(of_frame(hs.history(shuffled(frame, dice)))) == bare(expected)
    assert bare(of_frame(hs.history(shuffled(as_text, dice), {"operations": "steps"}))) == bare(expected)
    first = frame.orderBy("session", "transaction").limit(1)
    other = first.selectExpr("session", "transaction", "slice(operations, 1, 0) as operations")
    for again, field in ((first, "id"), (other, "transaction")):
        found = hs.history(frame.union(again)).quarantine.collect()
        told = [row for row in found if row.field == field]
        assert len(told) == 1 and (told[0].reason == REPEATED) == (field == "id")


def test_a_read_of_a_value_that_nobody_wrote_or_several_did_is_named(spark):
    rows = [(1, 1, ["w x 1", "r y 7"]), (2, 1, ["w x 1", "r x 2"]), (3, 1, ["r x 1", "w x 2"])]
    frame = spark.createDataFrame(rows, "session int, transaction int, operations array<string>")
    told = {row["process"]: row["attributes"].get(UNKNOWN) for row in of_frame(hs.history(frame))}
    assert told == {"session 1": "y=7", "session 2": None, "session 3": "x=1"}


def test_a_message_without_a_kind_is_refused_by_name(spark):
    rows = [("p", 1, "send", "m"), ("q", 1, None, "m"), ("q", 2, None, None)]
    events = hs.log(spark.createDataFrame(rows, "process string, seq int, kind string, message string"))
    (told,) = events.quarantine.collect()
    assert "kind is missing beside message 'm', and what was done with a message is send" in told.reason
    with pytest.raises(hs.NotJudged, match="kind is missing beside message 'm'"):
        hs.violations(events)
