"""Live spans into Spark: from the OpenTelemetry SDK by way of the receiver to a streaming query."""

import json

import pytest
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter as GrpcExporter
from pyspark.errors import StreamingQueryException

from happened.causality.judgement import check_path
from happened.cli import stream
from happened.spark.live.live_job import has_not_begun
from happened.spark.live.trace_source import TraceSource
from happened.trace import read
from receiving.running import receiving, state, until
from receiving.services import Service, an_order
from receiving.test_settled_trace import WINDOW, imported, parts, pass_a_window

pytestmark = pytest.mark.slow

STARTS = 10  # of a query: other tests may keep both processors busy for longer than Spark waits


def orders(out, count):
    """Receive so many orders, and let them settle."""
    with receiving(out, window=WINDOW) as receiver:
        at = receiver.addresses["grpc"]
        names = ("shop", "stock", "billing")
        services = [Service(name, GrpcExporter(endpoint=at, insecure=True)) for name in names]
        for _ in range(count):
            an_order(*services)
        assert all(service.send() for service in services)
        until(lambda: state(out)["counts"]["spans"])
        pass_a_window(receiver)
        until(lambda: state(out)["counts"]["settled_traces"] and not state(out)["counts"]["spans"])
        for service in services:
            service.close()


def events_of(spark, out, folder):
    """The events that a query reads from where it was; it is started again if the machine is too busy."""
    for left in reversed(range(STARTS)):
        found = []
        try:
            read_all(spark, out, folder, found)
            break
        except StreamingQueryException as error:
            if not left or found or not has_not_begun(error):
                raise
    return [(row.computation, row.process, row.seq) for row in found]


def read_all(spark, out, folder, found):
    query = (
        spark.readStream.format("happened")
        .load(str(out / "settled"))
        .writeStream.foreachBatch(lambda frame, _: found.extend(frame.collect()))
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


def test_a_query_reads_what_has_settled_once_and_goes_on_with_what_settles_later(
    command, spark, tmp_path, capsys, monkeypatch
):
    out = tmp_path / "live"
    spark.dataSource.register(TraceSource)
    orders(out, 2)
    first = events_of(spark, out, tmp_path)
    assert first and events_of(spark, out, tmp_path) == []
    orders(out, 1)
    second = events_of(spark, out, tmp_path)
    assert second and not {*first} & {*second} and len(parts(out)) == 2
    # Nothing is missing. Orders that settled apart are computations apart, and an import joins them.
    imported(out, tmp_path / "imported")
    assert len(first) + len(second) == read(tmp_path / "imported").num_rows
    monkeypatch.setattr(stream, "STARTS", STARTS)
    # `happened stream` follows it, and says what `check` says of it.
    code = command(["stream", str(out / "settled"), "--out", str(tmp_path / "answers"), "--json"])
    totals = json.loads(capsys.readouterr().out)
    judged = check_path(out / "settled").judgement
    assert code == judged.exit_code == 1
    assert totals["causal_violations"] == judged.verdict.violations >= 2
    assert totals["deliveries_judged"] == judged.verdict.deliveries
