"""What every format of spans has in common: one draft per span, with its process, kind, queue and peer.

A process is an instance of a service. `instance_name` names it from whatever the source says about the place
a span ran in, the most telling fact first; a service of which nothing else is known is one instance.

A *channel* is what a queue keeps in order: the messages of one key, session, conversation or ordering group,
or else of one partition, of one destination. Where attributes name none, nothing is in order.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from ..lane_names import LANE
from .draft import Draft, QuarantinedRecord

KINDS = ("unspecified", "internal", "server", "client", "producer", "consumer")
PARTITION = "partition-"

INSTANCE_FACTS = (
    ("service.instance.id",),
    ("k8s.pod.name",),
    ("k8s.pod.uid",),
    ("container.id",),
    ("host.name", "process.pid"),
    ("hostname", "pid"),
    ("host.id",),
    ("host.name",),
    ("hostname",),
    ("jaeger.hostname",),
    ("client-uuid",),
    ("ip",),
)

KEYS = (
    "messaging.kafka.message.key",
    "messaging.kafka.message_key",
    "kafka.key",
    "messaging.gcp_pubsub.message.ordering_key",
    "messaging.rocketmq.message.group",
    "messaging.sqs.message.group.id",
    "messaging.message.group.id",
    "messaging.servicebus.session.id",
    "messaging.session.id",
    "session.id",
    "messaging.message.conversation_id",
    "messaging.conversation_id",
)
PARTITIONS = (
    "messaging.destination.partition.id",
    "messaging.kafka.destination.partition",
    "messaging.kafka.partition",
    "kafka.partition",
)
DESTINATIONS = (
    "messaging.destination.name",
    "messaging.destination",
    "messaging.kafka.topic",
    "kafka.topic",
    "message_bus.destination",
)
GROUPS = ("messaging.consumer.group.name", "messaging.kafka.consumer.group", "messaging.kafka.consumer_group")
TASKS = ("task.id", "asyncio.task", "coroutine.id", "goroutine.id", "fiber.id", "thread.id", "thread.name")
OPERATIONS = ("messaging.operation.type", "messaging.operation")
NAMED_PEERS = ("peer", "peer.service")
PEERS = (
    "db.name",
    "db.system.name",
    "db.system",
    "messaging.system",
    "server.address",
    "net.peer.name",
    "peer.hostname",
    "peer.address",
    "net.peer.ip",
)


@dataclass(frozen=True, slots=True)
class Instance:
    """The service that ran a span, and the instance of it, which is a process of the trace."""

    service: str
    instance: str

    @classmethod
    def of(cls, service: str, facts: Mapping[str, str]) -> "Instance":
        return cls(service, instance_name(service, facts))


def instance_name(service: str, facts: Mapping[str, str]) -> str:
    for names in INSTANCE_FACTS:
        if all(facts.get(name) for name in names):
            return at(service, ":".join(facts[name] for name in names))
    return at(service, "")


def at(service: str, place: str) -> str:
    """`service@place`; a tilde in either is written %7E, for it begins the name of a lane."""
    return (f"{service}@{place}" if place else service).replace(LANE, "%7E")


@dataclass(slots=True)
class Span:
    """One span as its source has it; times are nanoseconds."""

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
    took: int | None = None  # where the end is not known because the start is not

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


def set_aside(
    problem: QuarantinedRecord, trace: object, span: object, parents: tuple[str, ...]
) -> Iterator[Draft | QuarantinedRecord]:
    """A span that cannot be imported: it is quarantined, and its children will be its parents' instead."""
    yield problem
    if trace is not None and span is not None:
        id = span_id(str(trace), str(span))
        yield Draft(problem.file, problem.line or 0, str(trace), "", id=id, parents=parents, absent=True)


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
    """The callee that a span names: of a client or producer by any of PEERS, of other kinds by
    NAMED_PEERS only."""
    if kind in ("server", "consumer"):
        return None
    return first_of(attributes, NAMED_PEERS + PEERS if kind in ("client", "producer") else NAMED_PEERS)


def caller_of(attributes: Mapping[str, str], kind: str) -> str | None:
    """The caller that a server's or consumer's span names; for a consumer at least the broker."""
    if kind not in ("server", "consumer"):
        return None
    return first_of(attributes, (*NAMED_PEERS, "messaging.system") if kind == "consumer" else NAMED_PEERS)


def has_failed(attributes: Mapping[str, str]) -> bool:
    return attributes.get("error", "false") != "false"
