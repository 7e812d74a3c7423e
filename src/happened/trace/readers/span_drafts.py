"""The common part of all formats of spans: one draft per span, with its process, kind, queue and peer.

A process is an instance of a service. `Instance.of` names it from the source's facts about where a span ran,
the most specific fact first; a service without such facts is one instance.

A *channel* is a set of messages that a queue keeps in order: those of one key, session, conversation or
ordering group, or else of one partition, of one destination. Without such attributes, nothing is in order.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from ..schema import LANE
from .draft import Draft, Parsed, QuarantinedRecord, left_out
from .json_documents import as_object

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

KINDS = ("unspecified", "internal", "server", "client", "producer", "consumer")
PARTITION = "partition-"

INSTANCE_FACTS = (
    ("service.instance.id",), ("k8s.pod.name",), ("k8s.pod.uid",), ("container.id",),
    ("host.name", "process.pid"), ("hostname", "pid"), ("host.id",), ("host.name",), ("hostname",),
    ("jaeger.hostname",), ("client-uuid",), ("ip",),
)  # fmt: skip
KEYS = (
    "messaging.kafka.message.key", "messaging.kafka.message_key", "kafka.key",
    "messaging.gcp_pubsub.message.ordering_key", "messaging.rocketmq.message.group",
    "messaging.sqs.message.group.id", "messaging.message.group.id",
    "messaging.servicebus.session.id", "messaging.session.id", "session.id",
    "messaging.message.conversation_id", "messaging.conversation_id",
)  # fmt: skip
PARTITIONS = (
    "messaging.destination.partition.id", "messaging.kafka.destination.partition",
    "messaging.kafka.partition", "kafka.partition",
)  # fmt: skip
DESTINATIONS = (
    "messaging.destination.name", "messaging.destination",
    "messaging.kafka.topic", "kafka.topic", "message_bus.destination",
)  # fmt: skip
GROUPS = ("messaging.consumer.group.name", "messaging.kafka.consumer.group", "messaging.kafka.consumer_group")
TASKS = ("task.id", "asyncio.task", "coroutine.id", "goroutine.id", "fiber.id", "thread.id", "thread.name")
OPERATIONS = ("messaging.operation.type", "messaging.operation")
NAMED_PEERS = ("peer", "peer.service")
PEERS = (
    "db.name", "db.system.name", "db.system", "messaging.system",
    "server.address", "net.peer.name", "peer.hostname", "peer.address", "net.peer.ip",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Instance:
    """The service that ran a span, and the instance of it, which is a process of the trace."""

    service: str
    instance: str

    @classmethod
    def of(cls, service: str, facts: Mapping[str, str]) -> "Instance":
        """The instance named by the first entry of INSTANCE_FACTS that these facts contain completely."""
        known = (names for names in INSTANCE_FACTS if all(facts.get(name) for name in names))
        return cls(service, at(service, ":".join(facts[name] for name in next(known, ()))))


def at(service: str, place: str) -> str:
    """`service@place`; a tilde in either becomes %7E, since a tilde separates the name of a lane."""
    return (f"{service}@{place}" if place else service).replace(LANE, "%7E")


@dataclass(slots=True)
class Span:
    """One span as its source records it; times are nanoseconds."""

    trace: str
    id: str
    place: Instance
    name: str
    kind: str = ""
    start: int | None = None
    end: int | None = None
    attributes: dict[str, str] = field(default_factory=dict)
    parents: tuple[str, ...] = ()
    links: tuple[str, ...] = ()
    shared: bool = False
    error: bool = False
    took: int | None = None  # duration, if the end is unknown because the start is

    def draft(self, file: str, line: int) -> Draft:
        facts = {"trace": self.trace, "span": self.id, "service": self.place.service}
        told = {"kind": self.kind, "end": "" if self.end is None else str(self.end)}
        if self.error:
            told["error"] = self.attributes.get("error") or "true"
        return Draft(
            file,
            line,
            self.trace,
            self.place.instance,
            self.name or None,
            time=self.start,
            end=self.end,
            took=self.took,
            attributes=self.attributes | facts | {name: value for name, value in told.items() if value},
            id=span_id(self.trace, self.id),
            parents=self.parents,
            links=self.links,
            shared=self.shared,
            channel=channel_of(self.attributes, self.kind),
        )


def span_id(trace: str, span: str) -> str:
    """The id of a span within an import: trace and span, since span ids are unique only within a trace."""
    return f"{trace}:{span}"


class SpanNames(NamedTuple):
    """The known names of a span that cannot be imported."""

    trace: str
    id: str
    parents: tuple[str, ...]


class NoSpan(Exception):
    """A record cannot be imported as a span. If its names are known, its children get its parents."""

    def __init__(self, field: str | None, reason: str, names: SpanNames | None = None) -> None:
        super().__init__(reason)
        self.field, self.reason, self.names = field, reason, names


def drafted(file: str, line: int, record: Any, read: Callable[..., Span], *context: Any) -> Parsed:
    """The result for a record that `read(record, *context)` turns into a span; a record that is already
    quarantined stays so."""
    if isinstance(record, QuarantinedRecord):
        yield record
        return
    try:
        yield read(record, *context).draft(file, line)
    except NoSpan as problem:
        yield left_out(file, line, record, problem.field, problem.reason)
        if problem.names is not None:
            trace, id, parents = problem.names
            yield Draft(file, line, trace, "", id=span_id(trace, id), parents=parents, absent=True)


def texts(attributes: Any) -> dict[str, str]:
    """Attributes as strings; values that are not strings are written as JSON."""
    return {
        str(name): value if isinstance(value, str) else json.dumps(value)
        for name, value in as_object(attributes).items()
    }


def nanoseconds(value: Any) -> int | None:
    """A time since 1970, as ISO 8601 or a number whose size shows its unit; None if absent. ValueError if it
    cannot be read."""
    if value is None or value == "":
        return None
    if isinstance(value, str) and not value.lstrip("-").replace(".", "", 1).isdigit():
        moment = datetime.fromisoformat(value)
        moment = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
        return (moment - EPOCH) // timedelta(microseconds=1) * 1000
    number = float(value)
    for unit, above in ((1, 1e17), (1000, 1e14), (1_000_000, 1e11), (1_000_000_000, 0)):
        if abs(number) >= above:
            whole = isinstance(value, int) or (isinstance(value, str) and value.lstrip("-").isdigit())
            return int(value) * unit if whole else round(number * unit / 1000) * 1000  # as precise as doubles
    raise ValueError(f"{value!r} is no number")


def known_kind(kind: object) -> str:
    """A span's kind in small letters: OTLP's number or name, Zipkin's, or Jaeger's tag."""
    if isinstance(kind, int) and not isinstance(kind, bool) and 0 <= kind < len(KINDS):
        return KINDS[kind]
    return str(kind or "").removeprefix("SPAN_KIND_").lower()


def first_of(attributes: Mapping[str, str], names: tuple[str, ...]) -> str | None:
    return next((attributes[name] for name in names if attributes.get(name)), None)


def channel_of(attributes: Mapping[str, str], kind: str) -> str | None:
    """The channel that a producer's or consumer's span names, as `destination/key`."""
    if kind not in ("producer", "consumer") and not any(name.startswith("messaging.") for name in attributes):
        return None
    destination = first_of(attributes, DESTINATIONS)
    within = f"{destination}/" if destination is not None else ""
    key, partition = first_of(attributes, KEYS), first_of(attributes, PARTITIONS)
    if key is not None:
        return f"{within}{key}"
    return f"{within}{PARTITION}{partition}" if partition is not None else None


def is_partition(channel: str) -> bool:
    return channel.rpartition("/")[2].startswith(PARTITION)


def callee_of(attributes: Mapping[str, str], kind: str) -> str | None:
    """The callee that a span names: for a client or producer any of PEERS counts, for other kinds only
    NAMED_PEERS."""
    if kind in ("server", "consumer"):
        return None
    return first_of(attributes, NAMED_PEERS + PEERS if kind in ("client", "producer") else NAMED_PEERS)


def caller_of(attributes: Mapping[str, str], kind: str) -> str | None:
    """The caller that a server's or consumer's span names; for a consumer at least the broker is known."""
    if kind not in ("server", "consumer"):
        return None
    return first_of(attributes, (*NAMED_PEERS, "messaging.system") if kind == "consumer" else NAMED_PEERS)


def has_failed(attributes: Mapping[str, str]) -> bool:
    return attributes.get("error", "false") != "false"
