"""Receives spans that OpenTelemetry's exporters and collectors send over OTLP, and judges them at once.

export_requests  decodes requests and encodes the answers
span_log         writes requests to disk before they are answered, in the format of the collector's file
                 exporter, and the traces that have left the window as a trace that grows
intake           puts requests into the log and into the window of the last minutes, or refuses them
otlp_http        serves POST /v1/traces
otlp_grpc        serves TraceService/Export
last_minutes     judges the traces that have ended and writes a trace and tables
receiver         runs all of these

This package imports `ask` and `report`, whose answers and page it writes again and again.
"""
