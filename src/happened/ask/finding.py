"""Events and requests by the names people have for them.

An event is named, and looked for in this order: `process#seq` (or `computation:process#seq`); the id of a
span, or `trace:span`; a message; a label, then a part of one, in any case. The first kind of name that fits
decides.

A span may be two events and a message always is. Such a name stands for the first of its events where we ask
what followed from it, and for the last where we ask what led to it.
"""

from difflib import get_close_matches
from itertools import islice
from typing import Literal, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ..causality.computation import DELIVER, RECEIVE, SEND
from ..causality.linearization import Ints
from .errors import AmbiguousName, UnknownName
from .history import History, printable
from .naming import ID, KINDS, LABEL, MESSAGE, PART, SPAN

End: TypeAlias = Literal["first", "last"]

MOST_COMPARED = 20_000
"""Names that a misspelt one is compared with; more would take seconds."""


def find_event(history: History, text: str, end: End = "last") -> int:
    """The event with this name; UnknownName if there is none, AmbiguousName if there are several."""
    for find in (_by_id, _by_span, _by_message, _by_label):
        things = find(history, text)
        if things:
            events = [e for thing in things for e in _one_of(history, thing, end)]
            if len(events) == 1:
                return events[0]
            raise AmbiguousName(text, (_told(history, e) for e in events))
    raise UnknownName(_unknown(history, text))


def find_request(history: History, text: str) -> int:
    """The number of the request of this name: its id, the beginning of one, or an event of it."""
    codes, names = history.requests
    exact = [number for number, name in enumerate(names) if name == text]
    starting = [number for number, name in enumerate(names) if text and name.startswith(text)]
    for found in (exact, starting):
        if len(found) == 1:
            return found[0]
        if found:
            raise AmbiguousName(text, ((printable(names[n]), _root(history, n)) for n in found))
    request = int(codes[find_event(history, text)])
    if request < 0:
        raise UnknownName(f"{text!r} is an event that belongs to no request: it has no attribute `trace`")
    return request


def _root(history: History, request: int) -> str:
    codes, _ = history.requests
    return str(history.occurrence(int(np.argmax(codes == request))))


Thing: TypeAlias = tuple[str, list[int]]
"""What sort of thing a name means (`event`, `span`, `message`), and its events in topological order."""


def _events(history: History, mask: pa.Array | pa.ChunkedArray) -> list[int]:
    rows = np.flatnonzero(pc.fill_null(mask, False).to_numpy(zero_copy_only=False))
    return sorted(history.event_of_row[rows].tolist())


def _named(history: History, kind: str, text: str) -> list[int]:
    return _events(history, KINDS[kind](history.table, history.attribute, text))


def _by_id(history: History, text: str) -> list[Thing]:
    return [("event", [e]) for e in _named(history, ID, text)]


def _by_span(history: History, text: str) -> list[Thing]:
    return _as_things(history, _named(history, SPAN, text))


def _by_message(history: History, text: str) -> list[Thing]:
    things: dict[int, list[int]] = {}
    for e in _named(history, MESSAGE, text):
        things.setdefault(int(history.union.message[e]), []).append(e)
    return [("message", events) for events in things.values()]


def _by_label(history: History, text: str) -> list[Thing]:
    return _as_things(history, _named(history, LABEL, text) or _named(history, PART, text))


def _as_things(history: History, events: list[int]) -> list[Thing]:
    """The spans that these events are of, whole, and each event that is of none by itself.

    The events of one span at one place are one thing. Client and server may share the id of a span: those are
    two things. A service may have run one span on several processes: that is one.
    """
    span, trace = history.attribute("span"), history.attribute("trace")
    places, _ = history.places

    def key(e: int) -> tuple[str | None, str | None, int]:
        at = int(history.union.row[e])
        return span[at].as_py(), trace[at].as_py(), int(places[e])

    keys = [key(e) for e in events]
    meant = {of for of in keys if of[0] is not None}
    spans: dict[tuple[str | None, str | None, int], list[int]] = {}
    for e in _events(history, pc.is_in(span, value_set=pa.array({id for id, _, _ in meant}, pa.string()))):
        if key(e) in meant:
            spans.setdefault(key(e), []).append(e)
    alone = [e for e, of in zip(events, keys, strict=True) if of[0] is None]
    return [("event", [e]) for e in alone] + [("span", of) for of in spans.values()]


def _one_of(history: History, thing: Thing, end: End) -> list[int]:
    """The event that a thing stands for, or those that it may stand for: deliveries of one message."""
    sort, events = thing
    if sort != "message":
        return [events[0] if end == "first" else events[-1]]
    kind = history.union.kind
    sends = [e for e in events if kind[e] == SEND]
    if end == "first" and sends:
        return sends
    delivered = [e for e in events if kind[e] == DELIVER] or [e for e in events if kind[e] == RECEIVE]
    return delivered or events


def _told(history: History, e: int) -> tuple[str, str]:
    """A name that finds the event, and a description of it."""
    occurrence = history.occurrence(e)
    several = (_counts(history, occurrence.process) >= occurrence.seq).sum() > 1
    name = f"{occurrence.computation}:{occurrence.id}" if several else occurrence.id
    about = str(occurrence).removeprefix(printable(occurrence.id)).strip()
    return printable(name), f"{about}, request {printable(occurrence.trace)}" if occurrence.trace else about


def _unknown(history: History, text: str) -> str:
    reason = f"nothing in the trace is called {text!r}: no process#seq, span, message or label"
    name, mark, number = text.rpartition("#")
    if mark and number.isascii() and number.isdigit():
        counts = _counts(history, name)
        if counts.size:
            has = f"process {name!r} has the events 1 to {counts.max()}"
            return f"there is no event {text!r}: {has}"
    near = get_close_matches(text, _names(history, text), n=3, cutoff=0.5)
    return f"{reason}; nearest: {', '.join(map(repr, near))}" if near else reason


def _counts(history: History, process: str) -> Ints:
    c = history.union
    mine = [p for p, name in enumerate(c.process_names) if name == process]
    counts: Ints = np.diff(c.chain_offsets)[mine]
    return counts[counts > 0]


def _names(history: History, text: str) -> list[str]:
    """Names that `text` may be a misspelling of: first ids of the processes that it may mean."""
    process, _, number = text.rpartition("#")
    events = np.diff(history.union.chain_offsets).tolist()
    processes: dict[str, int] = {}
    for name, count in zip(history.union.process_names, events, strict=True):
        if count:
            processes[name] = max(count, processes.get(name, 0))
    seq = int(number) if number.isdecimal() and len(number) <= 18 else 1
    ids = (f"{name}#{max(1, min(seq, count))}" if process else name for name, count in processes.items())
    texts = (
        name
        for column in (history.table["message"], history.table["label"], history.attribute("span"))
        for name in pc.unique(column).to_pylist()
        if name is not None
    )
    return [*islice(ids, MOST_COMPARED // 2), *islice(texts, MOST_COMPARED // 2)]
