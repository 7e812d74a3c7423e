"""Real spans as frames, read by Spark's own readers: the events that importing the same files gives."""

import pytest
from pyspark.sql import functions as F

import happened.spark as hs
from spark.span_tables import of_files, of_frame


def frame_of(spark, path):
    """A file of spans as Spark's own readers read it, and how to read that."""
    if path.suffix == ".csv":
        columns = {
            "trace": "TraceID",
            "span": "SpanID",
            "parent": F.expr("nullif(ParentID, 'root')"),
            "service": "PodName",
            "label": "OperationName",
            "start": "StartTimeUnixNano",
            "end": "EndTimeUnixNano",
        }
        return spark.read.csv(str(path), header=True), {"columns": columns, "preset": "opentelemetry"}
    frame = spark.read.json(str(path), multiLine=True)
    return frame, {"preset": "jaeger"} if path.parent.name == "jaeger" else {}


@pytest.mark.parametrize(
    "name",
    [
        pytest.param("otlp/kiali-bookinfo-tempo.json", marks=pytest.mark.slow),
        "otlp/otlp2jaeger-multi-in-combined.json",
        "jaeger/spanAmongEachOtherGroupedAndSpans.json",
        pytest.param("jaeger/testTrace.json", marks=pytest.mark.slow),
        pytest.param("zipkin/messaging-kafka.json", marks=pytest.mark.slow),
        "zipkin/smartthings-oauth-authorization.json",
        pytest.param("nezha-spans/boutique-2022-08-22-0519.csv", marks=pytest.mark.slow),
        "nezha-spans/trainticket-2023-01-30-1139.csv",
    ],
)
def test_real_spans_as_a_frame_are_those_that_are_imported(name, spark, shared_traces, tmp_path):
    frame, how = frame_of(spark, shared_traces / name)
    events = hs.spans(frame.repartition(3), **how)
    rows, left_out, summary = of_files([shared_traces / name], tmp_path / "out")
    found = of_frame(events)
    if name.startswith("jaeger"):  # Spark's reader of JSON makes text of tags, in its own words
        found, rows = ([{**row, "attributes": None} for row in each] for each in (found, rows))
    assert found == rows
    assert events.quarantine.count() == len(left_out) == summary["quarantined"]
    assert len({row["computation"] for row in found}) == summary["computations"]
