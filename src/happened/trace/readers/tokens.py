"""Logs of the DistributedClocks tracing library: JSON lines with a vector clock, and tokens for messages.

GenerateTokenTrace is a send and ReceiveTokenTrace a receive of the same Body.Token. Where a token was
meant to go is not recorded: it went to those that received it. The clocks are kept and not used for
causes, so that they can be verified against the tokens.
"""

import json
from collections import Counter
from collections.abc import Iterable
from functools import partial
from typing import Any

from .clocked import assemble_clocked, clock_problem, out_of_file_order
from .draft import Assembly, Draft, Options, Parsed, QuarantinedRecord, by_computation
from .json_documents import objects
from .message_matching import Transmissions, pair
from .source import Source

SEND, RECEIVE = "GenerateTokenTrace", "ReceiveTokenTrace"


def parse(source: Source, options: Options) -> Parsed:
    for number, record in objects(source):
        yield record if isinstance(record, QuarantinedRecord) else _draft(source, number, record)


def assemble(drafts: Iterable[Draft], options: Options) -> Assembly:
    again: list[QuarantinedRecord] = []
    kept: list[Draft] = []
    unmatched: Counter[str] = Counter()
    for group in by_computation(drafts).values():
        tokens: dict[str, Transmissions] = {}
        for draft in group:
            token = draft.attributes.get("token")
            both = tokens.setdefault(token, Transmissions()) if token is not None else None
            if both is not None and draft.label == SEND and both.sends:
                reason = "was generated before; its receives belong to that one"
                again.append(draft.quarantined("Body.Token", reason))
            elif both is not None:
                (both.sends if draft.label == SEND else both.receives).append(len(kept))
            kept.append(draft)
        pair(kept, tokens, _message)
        unmatched["lost"] += sum(not both.receives for both in tokens.values())
        unmatched["never_sent"] += sum(not both.sends for both in tokens.values())
    assembled = assemble_clocked(kept, causes_from_clocks=False)
    return Assembly(assembled.rows, again + assembled.quarantined, unmatched)


def counts(drafts: list[Draft]) -> dict[str, int]:
    sent = {draft.attributes["token"] for draft in drafts if draft.label == SEND}
    received = {draft.attributes["token"] for draft in drafts if draft.label == RECEIVE}
    return {
        "lost": len(sent - received),
        "never_sent": len(received - sent),
        "tokens_sent": sum(draft.label == SEND for draft in drafts),
        "token_receives": sum(draft.label == RECEIVE for draft in drafts),
        "hosts_out_of_file_order": out_of_file_order(drafts),
    }


def _message(draft: Draft) -> str:
    return draft.attributes["token"]


def _draft(source: Source, number: int, record: dict[str, Any]) -> Draft | QuarantinedRecord:
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
        token = body.get("Token") if isinstance(body, dict) else None
        if not isinstance(token, str):
            return rejected("Body.Token", f"is missing; a {tag} names its token")
        attributes["token"] = token
    clock = {name: count for name, count in record["VectorClock"].items() if count}
    return Draft(source.file, number, source.computation, process, tag, clock=clock, attributes=attributes)
