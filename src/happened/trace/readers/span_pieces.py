"""One draft per span: pieces put together, repetitions left out, and whom a span means by its parent's id.

A tracer may report a span in pieces: records of one id by one instance, on one side of a call, that lack what
the others have. They are merged. Two whole records that say the same are a repetition; two that differ are
two spans with one id, and the second is quarantined.

Client and server may record one id, the two halves of a call. The server's half is the callee of the
client's, and a child belongs to the half of its own instance, or to the client's if there is none.

A span that had to be set aside (`Draft.absent`) stands for its own parents.
"""

from collections.abc import Sequence

from .draft import Assembly, Draft

Halves = dict[str, list[int]]
"""Drafts by id."""


def distinct_spans(drafts: Sequence[Draft], result: Assembly) -> list[Draft]:
    """Each span once; what was merged is counted, what was left out is quarantined."""
    spans = [draft for draft in drafts if not draft.absent]
    _add_ports(spans)
    seen: dict[tuple[str | None, str, bool], Draft] = {}
    clients = {span.id for span in spans if not span.shared}
    distinct = []
    for span in spans:
        first = seen.setdefault((span.id, span.process, span.shared), span)
        if first is span:
            distinct.append(span)
            continue
        same = (first.time, first.end, first.label) == (span.time, span.end, span.label)
        if not same and _is_piece(first, span):
            _merge(first, span)
            result.facts["pieces_merged"] += 1
        elif same or not (span.shared and span.id in clients):
            reason = "is recorded twice" if same else "is the id of two different spans of this service"
            result.quarantined.append(
                span.quarantined("id", f"{reason}, first {first.place}", imported=False)
            )
        else:  # a call that was tried again with the same id
            distinct.append(span)
    for span in distinct:
        if span.shared and span.id in clients:
            span.parents = (span.id or "",)
    return distinct


def _add_ports(spans: Sequence[Draft]) -> None:
    """An address without a port means the instance at that address with one, if there is only one such."""
    ported: dict[str, set[str]] = {}
    for span in spans:
        address, colon, port = span.process.rpartition(":")
        if colon and port.isdigit() and "@" in address:
            ported.setdefault(address, set()).add(span.process)
    for span in spans:
        known = ported.get(span.process, set())
        if len(known) == 1:
            span.process = next(iter(known))


def _is_piece(first: Draft, again: Draft) -> bool:
    """Whether two records can be of one span: one of them lacks a time, and names do not differ."""
    whole = all(time is not None for time in (first.time, first.end, again.time, again.end))
    return not whole and (first.label or again.label) == (again.label or first.label)


def _merge(first: Draft, again: Draft) -> None:
    first.label = first.label or again.label
    first.time = min((time for time in (first.time, again.time) if time is not None), default=None)
    first.end = max((time for time in (first.end, again.end) if time is not None), default=None)
    first.took = again.took if first.took is None else first.took
    if first.end is None and first.time is not None and first.took is not None:
        first.end = min(first.time + first.took, (1 << 63) - 1)
    first.attributes = again.attributes | first.attributes
    first.parents = first.parents or again.parents
    first.links = tuple(dict.fromkeys(first.links + again.links))
    first.channel = first.channel or again.channel


def halves_of(spans: Sequence[Draft]) -> Halves:
    halves: Halves = {}
    for i, span in enumerate(spans):
        halves.setdefault(span.id or "", []).append(i)
    return halves


class Finder:
    """Resolves the parent ids that spans name to spans."""

    def __init__(self, spans: Sequence[Draft], absent: Sequence[Draft]) -> None:
        self._spans = spans
        self._halves = halves_of(spans)
        self._absent = {draft.id or "": draft.parents for draft in absent if draft.id not in self._halves}

    def __call__(self, span: Draft, id: str) -> int | None:
        passed: set[str] = set()
        while id in self._absent and id not in passed and self._absent[id]:
            passed.add(id)
            id = self._absent[id][0]
        candidates = self._halves.get(id, [])
        if id == span.id:  # a server's half names its client's; a span that names itself is a circle
            clients = [i for i in candidates if self._spans[i] is not span and not self._spans[i].shared]
            candidates = clients or candidates
        local = [i for i in candidates if self._spans[i].process == span.process]
        servers = [i for i in local if self._spans[i].shared]
        for choice in (servers, local):
            if len(choice) == 1:
                return choice[0]
        # The client's half happened before the others, so it is a cause whichever half was meant.
        clients = [i for i in candidates if not self._spans[i].shared]
        return next(iter(clients or candidates), None)
