"""Logs of sends and receives: of the tracing library, of elections on a ring, and of etcd's raft.

Receives are matched with sends by the message content that both record. If a content was sent once, all its
receives are of that message; sends without receives are lost messages. Other cases are ambiguous: nothing
shows which of several equal messages a receive got, so those events become internal and keep their
description, unless the user declares the channels FIFO.
"""

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from functools import partial
from typing import Any

from . import clocked
from .clocked import assemble_clocked, clock_problem
from .cycles import break_circles
from .draft import Assembly, Draft, Options, Parsed, QuarantinedRecord, by_computation
from .json_documents import as_object, objects
from .source import Source


@dataclass(slots=True)
class Transmissions:
    """The sends and receives of one message content, as indices of drafts in file order."""

    sends: list[int] = field(default_factory=list)
    receives: list[int] = field(default_factory=list)

    @property
    def is_unique(self) -> bool:
        return len(self.sends) == 1 or not self.sends or not self.receives


def pair(
    drafts: Sequence[Draft],
    contents: dict[str, Transmissions],
    name: Callable[[Draft], str],
    *,
    fifo: bool = False,
) -> None:
    """Set kind, message and, if the source lacks destinations, `to`: the processes that received the message.

    `contents` maps the identity of a message, as far as the source gives it, to its transmissions; `name`
    names a message after its send, or after a receive without a send.
    """
    for both in contents.values():
        if not both.is_unique and not fifo:
            counted = f"{len(both.sends)} equal sends and {len(both.receives)} receives"
            for i in both.sends + both.receives:
                drafts[i].attributes["ambiguous"] = f"one of {counted}"
            continue
        sends = [drafts[i] for i in both.sends]
        receivers = sorted({drafts[i].process for i in both.receives})
        for send in sends:
            send.kind, send.message = "send", name(send)
            send.to = receivers if send.to is None else send.to
        for k, i in enumerate(both.receives):
            # Receives beyond the number of equal sends are repetitions of the last one.
            send = sends[min(k, len(sends) - 1)] if sends else drafts[i]
            drafts[i].kind, drafts[i].message = "receive", name(send)


# Logs of the DistributedClocks tracing library: JSON lines with a vector clock, and tokens for messages.
# GenerateTokenTrace is a send and ReceiveTokenTrace a receive of the same Body.Token. The destination of a
# token is not recorded: it counts as sent to those that received it. The clocks are kept but not used for
# causes, so that they can be verified against the tokens.

SEND, RECEIVE = "GenerateTokenTrace", "ReceiveTokenTrace"


def parse_tokens(source: Source, options: Options) -> Parsed:
    for number, record in objects(source):
        yield record if isinstance(record, QuarantinedRecord) else _token_draft(source, number, record)


def _token_draft(source: Source, number: int, record: dict[str, Any]) -> Draft | QuarantinedRecord:
    rejected = partial(source.quarantined, number, record)
    process, tag, body = record.get("TracerIdentity"), record.get("Tag"), record.get("Body")
    if not isinstance(process, str) or not process:
        return rejected("TracerIdentity", "is missing; it names the process")
    if not isinstance(tag, str):
        return rejected("Tag", "is missing; it says what the event is")
    problem = clock_problem(process, record.get("VectorClock"))
    if problem is not None:
        return rejected("VectorClock", problem)
    attributes = {"trace": str(record.get("TraceID", "")), "body": json.dumps(body, ensure_ascii=False)}
    if tag in (SEND, RECEIVE):
        token = as_object(body).get("Token")
        if not isinstance(token, str):
            return rejected("Body.Token", f"is missing; a {tag} names its token")
        attributes["token"] = token
    clock = {name: count for name, count in record["VectorClock"].items() if count}
    return Draft(source.file, number, source.computation, process, tag, clock=clock, attributes=attributes)


def assemble_tokens(drafts: Iterable[Draft], options: Options) -> Assembly:
    again: list[QuarantinedRecord] = []
    kept: list[Draft] = []
    unmatched: Counter[str] = Counter()
    for group in by_computation(drafts).values():
        tokens: dict[str, Transmissions] = {}
        for draft in group:
            token = draft.attributes.get("token")
            if token is not None:
                both = tokens.setdefault(token, Transmissions())
                if draft.label == RECEIVE:
                    both.receives.append(len(kept))
                elif not both.sends:
                    both.sends.append(len(kept))
                else:
                    reason = "was generated before; its receives belong to that one"
                    again.append(draft.quarantined("Body.Token", reason))
            kept.append(draft)
        pair(kept, tokens, lambda draft: draft.attributes["token"])
        unmatched["lost"] += sum(not both.receives for both in tokens.values())
        unmatched["never_sent"] += sum(not both.sends for both in tokens.values())
    assembled = assemble_clocked(kept, causes_from_clocks=False)
    return Assembly(assembled.rows, again + assembled.quarantined, unmatched)


def count_tokens(drafts: list[Draft]) -> dict[str, int]:
    sends = [draft.attributes["token"] for draft in drafts if draft.label == SEND]
    receives = [draft.attributes["token"] for draft in drafts if draft.label == RECEIVE]
    return {
        "lost": len({*sends} - {*receives}),
        "never_sent": len({*receives} - {*sends}),
        "tokens_sent": len(sends),
        "token_receives": len(receives),
        **clocked.counts(drafts),
    }


# Traces of leader election on a ring (Peterson's algorithm): `node v0,v1,… event args`. The vector's
# components are the nodes 0, 1, …. A `round-done` line repeats the clock of the event before it and is no
# event. If every receive names its message in its last argument, sends and receives are paired; causes come
# from the clocks in either case.

RING_LINE = re.compile(r"(?P<node>\d+) (?P<clock>\d+(?:,\d+)*) (?P<event>\S+)(?P<args>(?: \S+)*)\s*")
NO_EVENT = "round-done"


def parse_ring(source: Source, options: Options) -> Parsed:
    for number, text in source.lines():
        match = RING_LINE.fullmatch(text)
        if match is None:
            yield source.quarantined(number, text, None, "is not `node v0,v1,… event args`")
        elif match["event"] != NO_EVENT:
            clock = {str(node): int(count) for node, count in enumerate(match["clock"].split(","))}
            problem = clock_problem(match["node"], clock)
            if problem is not None:
                yield source.quarantined(number, text, "clock", problem)
                continue
            clock = {node: count for node, count in clock.items() if count}
            label = match["event"] + match["args"]
            yield Draft(source.file, number, source.computation, match["node"], label, clock=clock)


def assemble_ring(drafts: Iterable[Draft], options: Options) -> Assembly:
    kept = list(drafts)
    for group in by_computation(kept).values():
        contents: dict[str, Transmissions] = {}  # key: the number of the message
        for i, draft in enumerate(group):
            event, *args = (draft.label or "").split()
            if event.startswith(("send", "recv")):
                both = contents.setdefault(args[-1] if args else "", Transmissions())
                (both.sends if event.startswith("send") else both.receives).append(i)
        if all(len(both.sends) == 1 == len(both.receives) for both in contents.values()):
            pair(group, contents, lambda draft: (draft.label or "").rpartition(" ")[2])
    return assemble_clocked(kept, causes_from_clocks=True)


# Traces of etcd's raft library: JSON lines whose `event` has a node id, a name and perhaps a message. Send…
# and Receive… events carry the message's content and no id, contents repeat (heartbeats), messages get lost,
# and a leader acknowledges to itself. Unique contents are matched; others stay unmatched unless --match fifo
# declares the channels FIFO. The order of a node's events is that of the log, its only clock.

RAFT_FACTS = ("role", "log", "state", "conf", "prop")
RAFT_FATES = (
    "sends", "receives", "lost", "self_sends", "uniquely_matched", "ambiguous_sends", "ambiguous_receives",
)  # fmt: skip


def parse_raft(source: Source, options: Options) -> Parsed:
    for number, record in objects(source, exact=True):
        yield record if isinstance(record, QuarantinedRecord) else _raft_draft(source, number, record)


def _raft_draft(source: Source, number: int, record: dict[str, Any]) -> Draft | QuarantinedRecord:
    rejected = partial(source.quarantined, number, _compact(record))
    event = record.get("event")
    if not isinstance(event, dict):
        return rejected("event", "is missing; a line without one is no part of a trace")
    process, name = event.get("nid"), event.get("name")
    if not isinstance(process, str) or not process:
        return rejected("event.nid", "is missing; it names the process")
    if not isinstance(name, str):
        return rejected("event.name", "is missing; it says what the event is")
    draft = Draft(source.file, number, source.computation, process, name)
    draft.attributes = {key: _compact(event[key]) for key in RAFT_FACTS if key in event}
    timestamp = record.get("ts")
    if isinstance(timestamp, int | Decimal) and -(1 << 63) < timestamp < 1 << 63:
        draft.time = int(timestamp * 1_000_000_000)
    if name.startswith(("Send", "Receive")):
        message = event.get("msg")
        if not isinstance(message, dict) or not {"from", "to"} <= message.keys():
            return rejected("event.msg", f"is missing or names no `from` and `to`; a {name} needs them")
        own = "from" if name.startswith("Send") else "to"
        if message[own] != process:
            return rejected(f"event.msg.{own}", f"is {message[own]!r}, but the event is one of {process}")
        draft.attributes["content"] = _compact(message)
        draft.to = [str(message["to"])] if own == "from" else None
    return draft


def _compact(value: Any) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), default=str)


def assemble_raft(drafts: Iterable[Draft], options: Options) -> Assembly:
    result = Assembly()
    for group in by_computation(drafts).values():
        # A message is named by its sender and the line of its send.
        name = "{0.process}@{0.line}".format
        pair(group, _raft_contents(group), name, fifo=options.match == "fifo")
        seq: Counter[str] = Counter()
        rows = []
        for draft in group:
            seq[draft.process] += 1
            if draft.kind != "send":
                draft.to = None
            rows.append(draft.row(draft.process, seq[draft.process]))
        break_circles(rows, group, result)
        result.rows += rows
    return result


def count_raft(drafts: list[Draft]) -> dict[str, int]:
    fates: Counter[str] = Counter()
    for group in by_computation(drafts).values():
        fates.update(dict.fromkeys(RAFT_FATES, 0))
        for both in _raft_contents(group).values():
            sends, receives, ambiguous = len(both.sends), len(both.receives), not both.is_unique
            fates["sends"] += sends
            fates["receives"] += receives
            fates["lost"] += max(0, sends - receives)
            fates["self_sends"] += sum(group[i].to == [group[i].process] for i in both.sends)
            fates["uniquely_matched"] += sends == receives == 1
            fates["ambiguous_sends"] += ambiguous * sends
            fates["ambiguous_receives"] += ambiguous * receives
    return dict(fates)


def _raft_contents(drafts: list[Draft]) -> dict[str, Transmissions]:
    contents: dict[str, Transmissions] = {}
    for i, draft in enumerate(drafts):
        if "content" in draft.attributes:
            both = contents.setdefault(draft.attributes["content"], Transmissions())
            (both.sends if (draft.label or "").startswith("Send") else both.receives).append(i)
    return contents
