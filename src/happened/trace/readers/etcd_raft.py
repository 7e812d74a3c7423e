"""Traces of etcd's raft library: JSON lines whose `event` has a node id, a name and perhaps a message.

Send… and Receive… events carry the message's content and no id, contents repeat (heartbeats), messages
get lost, and a leader acknowledges to itself. What is unique is matched; the rest is ambiguous and
stays unmatched unless --match fifo says that channels are FIFO. Nodes have no clock but the log's order.
"""

import json
from collections.abc import Iterable
from decimal import Decimal
from functools import partial
from typing import Any

from .cycles import break_circles
from .draft import Assembly, Draft, Options, Parsed, QuarantinedRecord, by_computation
from .json_documents import objects
from .message_matching import Transmissions, pair
from .source import Source

FACTS = ("role", "log", "state", "conf", "prop")


def parse(source: Source, options: Options) -> Parsed:
    for number, record in objects(source, exact=True):
        yield record if isinstance(record, QuarantinedRecord) else _draft(source, number, record)


def assemble(drafts: Iterable[Draft], options: Options) -> Assembly:
    result = Assembly()
    for group in by_computation(drafts).values():
        pair(group, _contents(group), _message, fifo=options.match == "fifo")
        seq: dict[str, int] = {}
        rows = []
        for draft in group:
            seq[draft.process] = seq.get(draft.process, 0) + 1
            if draft.kind != "send":
                draft.to = None
            rows.append(draft.row(draft.process, seq[draft.process]))
        break_circles(rows, group, result)
        result.rows += rows
    return result


def counts(drafts: list[Draft]) -> dict[str, int]:
    fates: dict[str, int] = {}
    for group in by_computation(drafts).values():
        contents = _contents(group)
        every = contents.values()
        for name, count in {
            "sends": sum(len(t.sends) for t in every),
            "receives": sum(len(t.receives) for t in every),
            "lost": sum(t.lost for t in every),
            "self_sends": sum(group[i].to == [group[i].process] for t in every for i in t.sends),
            "uniquely_matched": sum(len(t.sends) == len(t.receives) == 1 for t in every),
            "ambiguous_sends": sum(len(t.sends) for t in every if not t.is_unique),
            "ambiguous_receives": sum(len(t.receives) for t in every if not t.is_unique),
        }.items():
            fates[name] = fates.get(name, 0) + count
    return fates


def _message(draft: Draft) -> str:
    """The name of a message: its sender and the line of its send."""
    return f"{draft.process}@{draft.line}"


def _contents(drafts: list[Draft]) -> dict[str, Transmissions]:
    contents: dict[str, Transmissions] = {}
    for i, draft in enumerate(drafts):
        if "content" in draft.attributes:
            both = contents.setdefault(draft.attributes["content"], Transmissions())
            (both.sends if (draft.label or "").startswith("Send") else both.receives).append(i)
    return contents


def _draft(source: Source, number: int, record: dict[str, Any]) -> Draft | QuarantinedRecord:
    rejected = partial(source.quarantined, number, _plain(record))
    event = record.get("event")
    if not isinstance(event, dict):
        return rejected("event", "is missing; a line without one is no part of a trace")
    process, name = event.get("nid"), event.get("name")
    if not isinstance(process, str) or not process:
        return rejected("event.nid", "is missing; it names the process")
    if not isinstance(name, str):
        return rejected("event.name", "is missing; it says what the event is")
    draft = Draft(source.file, number, source.computation, process, name)
    draft.attributes = {key: _plain(event[key]) for key in FACTS if key in event}
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
        draft.attributes["content"] = _plain(message)
        draft.to = [str(message["to"])] if own == "from" else None
    return draft


def _plain(value: Any) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), default=str)
