"""Spans as they are made: what OpenTelemetry's exporters and collectors send over OTLP, judged at once.

export_requests  what is sent, and what is answered
span_log         requests on disk before they are answered, as the collector's file exporter writes them,
                 and the traces that have left the window, as a trace that grows
intake           from a request to the log and the window of the last minutes, and refusals
otlp_http        POST /v1/traces
otlp_grpc        TraceService/Export
last_minutes     what the traces that have ended show: a trace and tables
receiver         all of that, running

The room is above `ask` and `report`, whose answers and page it writes again and again.
"""
