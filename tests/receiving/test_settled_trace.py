"""Traces that have left the window are in `settled` once, as an import of all spans has them."""

import os
import random
import time

import pyarrow.parquet as pq
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter as GrpcExporter

from happened.receiving import span_log
from happened.receiving.intake import WindowRules
from happened.receiving.receiver import Receiver, Settings
from happened.trace import read
from happened.trace.importing import import_files
from happened.trace.schema import SCHEMA
from receiving.running import HERE, receiving, state, until
from receiving.services import Service, an_order
from receiving.test_spans_live import post, requests_of

WINDOW = 600.0


def pass_a_window(receiver):
    """As if no span had come for that long."""
    receiver._intake._clock = lambda: time.time() + 2 * WINDOW
    receiver._settle_next = 0.0


def parts(out):
    return sorted((out / "settled").glob("*.parquet"))


def settled(out):
    return rows_of(row for part in parts(out) for row in pq.read_table(part).to_pylist())


def imported(out, to):
    """What `happened import` makes of all that was received."""
    kept = sorted(path for path in (out / "spans").iterdir() if path.suffix in (".otlp", ".jsonl"))
    import_files(kept, to)
    return rows_of(read(to).to_pylist())


def rows_of(rows):
    return sorted(map(repr, rows))


def test_spans_of_the_sdk_are_settled_as_an_import_has_them(tmp_path):
    out = tmp_path / "live"
    with receiving(out, window=WINDOW) as receiver:
        at = receiver.addresses["grpc"]
        names = ("shop", "stock", "billing")
        services = [Service(name, GrpcExporter(endpoint=at, insecure=True)) for name in names]
        an_order(*services)
        assert all(service.send() for service in services)
        until(lambda: "VIOLATED" in state(out).get("sentence", ""))
        assert not parts(out)
        pass_a_window(receiver)
        until(lambda: state(out)["counts"]["settled_traces"] and not state(out)["counts"]["spans"])
        for service in services:
            service.close()
    assert len(parts(out)) == 1 and settled(out) == imported(out, tmp_path / "imported")
    assert pq.read_table(out / "trace").num_rows == 0


def test_a_trace_is_settled_once_however_often_the_receiver_is_started_again(tmp_path, seed):
    """Also if it died before a part was written: what is in no part is taken from the log."""
    random_ = random.Random(seed)
    out, requests = tmp_path / "live", requests_of(4)
    random_.shuffle(requests)
    while requests:
        some, requests = requests[:7], requests[7:]
        with receiving(out, window=WINDOW) as receiver:
            for body in some:
                post(receiver, body)
    for _ in range(3):
        with receiving(out, window=WINDOW) as receiver:
            if not parts(out):
                until(lambda: "VIOLATED" in state(out).get("sentence", ""))
            pass_a_window(receiver)
            until(lambda: parts(out) and not state(out)["counts"]["spans"])
            assert state(out)["counts"]["late"] == 0
    assert len(parts(out)) == 1 and settled(out) == imported(out, tmp_path / "imported")


def test_a_span_that_comes_after_that_is_late_and_in_no_part(tmp_path):
    first, *others = requests_of(1)
    for restarted in (False, True):
        with receiving(tmp_path, window=WINDOW) as receiver:
            if not restarted:
                for body in others:
                    post(receiver, body)
                pass_a_window(receiver)
            until(lambda: parts(tmp_path) and not state(tmp_path)["counts"]["spans"])
            before = settled(tmp_path)
            post(receiver, first)
            until(lambda: state(tmp_path)["counts"]["late"] == 1)
    assert settled(tmp_path) == before


def test_a_part_that_cannot_be_written_is_written_later(tmp_path, monkeypatch):
    write, tried = pq.write_table, []

    def full(*given, **more):
        tried.append(given)
        if len(tried) < 3:
            raise OSError(28, "No space left on device")
        return write(*given, **more)

    told = []
    with receiving(tmp_path, window=WINDOW) as receiver:
        receiver._tell = told.append
        for body in requests_of(1):
            post(receiver, body)
        monkeypatch.setattr(span_log.pq, "write_table", full)
        for _ in range(3):
            pass_a_window(receiver)
            before = len(tried)
            until(lambda before=before: len(tried) > before)
        until(lambda: parts(tmp_path))
    assert sum("cannot be written (No space left on device)" in line for line in told) == 2
    assert settled(tmp_path) and state(tmp_path)["counts"]["settled_traces"]


def test_what_has_not_settled_is_kept_however_short_the_log_is_to_be(tmp_path):
    requests = requests_of(1)
    settings = Settings(None, HERE, WindowRules(0.1, WINDOW), keep=0.0)
    for _ in range(3):
        receiver = Receiver(tmp_path, settings)
        receiver.start()
        for body in requests:
            post(receiver, body)
        assert receiver.counts()["spans"] == len(requests_of(1))
        receiver.close()
        requests = []
        for log in (tmp_path / "spans").glob("spans-*"):  # nobody writes it, and it is old, but for a window
            os.utime(log, (time.time() - WINDOW / 2,) * 2)


def test_old_parts_are_removed_but_not_the_last_which_says_where_to_go_on(tmp_path):
    kept = span_log.SettledTrace(tmp_path)
    for number in range(3):
        kept.add([f"t{number}"], SCHEMA.empty_table())
        kept.write(float(number))
    again = span_log.SettledTrace(tmp_path)
    assert again.known() == (["t0", "t1", "t2"], 2.0)
    again.forget(time.time() + 1)
    assert again.known() == (["t2"], 2.0)
    again.add(["t3"], SCHEMA.empty_table())
    again.write(3.0)
    assert [part.name for part in sorted(tmp_path.iterdir())] == [
        "part-000000003.parquet",
        "part-000000004.parquet",
    ]


def test_a_trace_is_not_settled_again_when_its_part_is_old_and_its_log_is_not(tmp_path):
    """One file of the log has both, and the part that tells that the first has gone is not to be kept."""
    settings = Settings(None, HERE, WindowRules(0.05, 0.1), keep=0.0)

    def settle(*orders):
        receiver = Receiver(tmp_path, settings)
        receiver.start()
        for requests in orders:
            for body in requests:
                post(receiver, body)
            until(lambda: (receiver.look(), not receiver.counts()["spans"])[1])
        receiver.close()
        return span_log.SettledTrace(tmp_path / "settled").known()[0]

    once = settle(requests_of(1), requests_of(1))
    assert len({*once}) == len(once) and settle([]) == once
