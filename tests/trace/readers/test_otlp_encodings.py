"""OTLP as protobuf is read as the same document as JSON; a queue that changes the order is found in both."""

import gzip
import json
import struct

import pyarrow as pa
import pytest

from happened import causality, trace
from happened.cli import main
from happened.core.errors import TraceFormatError
from happened.trace.importing import import_files
from oracles.otlp_messages import encode


def attributes(**facts):
    return [{"key": key, "value": {"stringValue": value}} for key, value in facts.items()]


def resource(service, *spans, **facts):
    told = attributes(**{"service.name": service}, **facts)
    return {"resource": {"attributes": told}, "scopeSpans": [{"scope": {"name": "s"}, "spans": list(spans)}]}


def span(trace_id, span_id, name, kind, start, end, parent="", **more):
    return {
        "traceId": trace_id, "spanId": span_id, "parentSpanId": parent, "name": name, "kind": kind,
        "startTimeUnixNano": str(start), "endTimeUnixNano": str(end), "flags": 1,
    } | more  # fmt: skip


def orders(created_at, cancelled_at):
    """An order is created and, in another request, cancelled; billing handles both at these times."""
    keyed = attributes(**{"messaging.destination.name": "orders", "messaging.kafka.message.key": "42"})
    group = attributes(**{"messaging.consumer.group.name": "billing"})
    shop, billing = [], []
    for number, (what, sent, handled) in enumerate(
        [("created", 1000, created_at), ("cancelled", 2000, cancelled_at)], start=1
    ):
        t, root, out, into = (f"{number}{digit}" for digit in "abcd")
        t *= 8
        shop.append(span(t, root, f"POST {what}", 2, sent, sent + 90))
        shop.append(span(t, out, f"publish {what}", 4, sent + 10, sent + 20, root, attributes=keyed))
        handling = span(t, into, f"handle {what}", 5, handled, handled + 50, attributes=keyed + group)
        handling["links"] = [{"traceId": t, "spanId": out}]
        billing.append(handling)
    pod = {"k8s.pod.name": "billing-7f"}
    return {"resourceSpans": [resource("shop", *shop), resource("billing", *billing, **pod)]}


def framed(*messages):
    return b"".join(struct.pack(">I", len(each)) + each for each in messages)


def rows(out):
    return [
        {name: value for name, value in row.items() if name != "attributes"} | dict(row["attributes"])
        for row in trace.read(out).to_pylist()
    ]


def imported(tmp_path, name, data):
    (tmp_path / name).write_bytes(data)
    import_files([tmp_path / name], tmp_path / f"of-{name}")
    return tmp_path / f"of-{name}"


@pytest.mark.parametrize("form", ["json", "protobuf", "frames", "gzip", "zstd"])
def test_cancelled_before_created_is_a_violation_with_its_witness(form, tmp_path, capsys):
    document = orders(5000, 4000)
    message = encode(document)
    parts = [encode({"resourceSpans": [each]}) for each in document["resourceSpans"]]
    data = {
        "json": json.dumps(document).encode(),
        "protobuf": message,
        "frames": framed(*parts),
        "gzip": gzip.compress(message),
        "zstd": pa.compress(message, codec="zstd", asbytes=True),
    }[form]
    out = imported(tmp_path, "spans", data)
    assert main(["check", str(out)]) == 1
    said = capsys.readouterr().out
    assert "VIOLATED" in said and "billing@billing-7f~[billing:orders/42]" in said
    (witness,) = causality.check(out).witnesses
    assert (witness.early, witness.overtaken) == (
        f"{'2a' * 8}:2c publish cancelled",
        f"{'1a' * 8}:1c publish created",
    )


@pytest.mark.parametrize("form", ["json", "protobuf"])
def test_a_compressed_document_that_was_cut_is_read_up_to_the_cut(form, tmp_path):
    """One long line, or none at all: what could be uncompressed is not lost with the rest."""
    document = {"resourceSpans": orders(4000, 5000)["resourceSpans"] * 50}
    data = json.dumps(document).encode() if form == "json" else encode(document)
    path = tmp_path / "spans.gz"
    path.write_bytes(gzip.compress(data)[:-20])
    done = import_files([path], tmp_path / "out")
    assert done.summary["events"] > 0
    assert any("the compressed file is cut or damaged" in str(each) for each in done.quarantined)


@pytest.mark.parametrize("blank", ["\n", "\n\n\n", "\r\n\n", "\n \n"])
def test_json_after_blank_lines_is_not_taken_for_protobuf(blank, tmp_path):
    out = imported(tmp_path, "spans", f"{blank}{json.dumps(orders(4000, 5000), indent=2)}".encode())
    assert causality.check(out).verdict.deliveries == 2


def test_created_before_cancelled_is_none(tmp_path):
    out = imported(tmp_path, "spans", encode(orders(4000, 5000)))
    found = causality.check(out)
    assert found.holds and found.verdict.deliveries == 2


def test_all_fields_are_the_same_in_both_encodings(tmp_path):
    document = orders(4000, 5000)
    first = document["resourceSpans"][0]["scopeSpans"][0]["spans"][0]
    first["status"] = {"code": 2, "message": "no"}
    first["attributes"] = [
        {"key": "n", "value": {"intValue": "-7"}},
        {"key": "yes", "value": {"boolValue": True}},
        {"key": "half", "value": {"doubleValue": 0.5}},
        {"key": "list", "value": {"arrayValue": {"values": [{"stringValue": "a"}]}}},
        {"key": "ünï", "value": {"stringValue": "©"}},
    ]
    in_json = imported(tmp_path, "json", json.dumps(document).encode())
    in_bytes = imported(tmp_path, "bytes", encode(document))
    assert rows(in_json) == rows(in_bytes)
    assert rows(in_json)[0]["error"] == "true" and rows(in_json)[0]["n"] == "-7"


def test_bytes_that_end_too_early_lose_the_last_resource_only(tmp_path):
    message = encode(orders(4000, 5000))
    first = len(encode({"resourceSpans": orders(4000, 5000)["resourceSpans"][:1]}))
    for length in range(6, len(message) - 1, 5):
        (tmp_path / f"cut{length}").write_bytes(message[:length])
        if length < first:
            with pytest.raises(TraceFormatError, match="no events were found"):
                import_files([tmp_path / f"cut{length}"], tmp_path / f"of{length}", format="otlp")
            continue
        done = import_files([tmp_path / f"cut{length}"], tmp_path / f"of{length}", format="otlp")
        assert done.summary["quarantined"] >= 1 and done.summary["events"] == 8


@pytest.mark.parametrize(
    "data", [b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", b"\x0a\x02\x0a\xff", b"\0\0\0\5\x0a"]
)
def test_damaged_bytes_are_an_error(data, tmp_path):
    (tmp_path / "bad").write_bytes(data)
    with pytest.raises(TraceFormatError, match="no events were found"):
        import_files([tmp_path / "bad"], tmp_path / "out", format="otlp")
    assert not (tmp_path / "out").exists()
