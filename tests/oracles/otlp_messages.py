"""OTLP documents as protobuf bytes, encoded by Google's library from the published field numbers."""

import base64

from google.protobuf import descriptor_pb2, descriptor_pool, json_format, message_factory

F = descriptor_pb2.FieldDescriptorProto
MESSAGES = {
    "AnyValue": [("string_value", 1, F.TYPE_STRING), ("bool_value", 2, F.TYPE_BOOL),
                 ("int_value", 3, F.TYPE_INT64), ("double_value", 4, F.TYPE_DOUBLE),
                 ("array_value", 5, "ArrayValue")],
    "ArrayValue": [("values", 1, ["AnyValue"])],
    "KeyValue": [("key", 1, F.TYPE_STRING), ("value", 2, "AnyValue")],
    "Resource": [("attributes", 1, ["KeyValue"]), ("dropped_attributes_count", 2, F.TYPE_UINT32)],
    "Status": [("message", 2, F.TYPE_STRING), ("code", 3, F.TYPE_INT32)],
    "Link": [("trace_id", 1, F.TYPE_BYTES), ("span_id", 2, F.TYPE_BYTES), ("attributes", 4, ["KeyValue"])],
    "Event": [("time_unix_nano", 1, F.TYPE_FIXED64), ("name", 2, F.TYPE_STRING)],
    "Span": [("trace_id", 1, F.TYPE_BYTES), ("span_id", 2, F.TYPE_BYTES), ("trace_state", 3, F.TYPE_STRING),
             ("parent_span_id", 4, F.TYPE_BYTES), ("name", 5, F.TYPE_STRING), ("kind", 6, F.TYPE_INT32),
             ("start_time_unix_nano", 7, F.TYPE_FIXED64), ("end_time_unix_nano", 8, F.TYPE_FIXED64),
             ("attributes", 9, ["KeyValue"]), ("events", 11, ["Event"]), ("links", 13, ["Link"]),
             ("status", 15, "Status"), ("flags", 16, F.TYPE_FIXED32)],
    "Scope": [("name", 1, F.TYPE_STRING)],
    "ScopeSpans": [("scope", 1, "Scope"), ("spans", 2, ["Span"])],
    "ResourceSpans": [("resource", 1, "Resource"), ("scope_spans", 2, ["ScopeSpans"])],
    "TracesData": [("resource_spans", 1, ["ResourceSpans"])],
}  # fmt: skip


def _traces_data():
    file = descriptor_pb2.FileDescriptorProto(name="otlp_of_tests.proto", package="tests", syntax="proto3")
    for name, fields in MESSAGES.items():
        message = file.message_type.add(name=name)
        for field_name, number, kind in fields:
            repeated = isinstance(kind, list)
            of = kind[0] if repeated else kind
            field = message.field.add(name=field_name, number=number)
            field.label = F.LABEL_REPEATED if repeated else F.LABEL_OPTIONAL
            if isinstance(of, str):
                field.type, field.type_name = F.TYPE_MESSAGE, f".tests.{of}"
            else:
                field.type = of
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("tests.TracesData"))


TracesData = _traces_data()
KINDS = ["UNSPECIFIED", "INTERNAL", "SERVER", "CLIENT", "PRODUCER", "CONSUMER"]


def encode(document):
    """The bytes of an OTLP-JSON document whose ids are hexadecimal."""
    return json_format.ParseDict(_with_bytes(document), TracesData()).SerializeToString()


def _with_bytes(value, name=""):
    if isinstance(value, dict):
        return {key: _with_bytes(each, key) for key, each in value.items()}
    if isinstance(value, list):
        return [_with_bytes(each) for each in value]
    if name in ("traceId", "spanId", "parentSpanId"):
        return base64.b64encode(bytes.fromhex(value)).decode()
    if name == "kind" and isinstance(value, str):
        return KINDS.index(value.removeprefix("SPAN_KIND_"))
    return value
