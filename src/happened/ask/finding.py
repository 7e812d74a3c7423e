"""Find events and requests by the names that people use for them.

The kinds of names are tried in this order: `process#seq` (or `computation:process#seq`); the id of a span, or
`trace:span`; a message; a label; a part of a label, ignoring case. The first kind that fits any event
decides.

A span may be two events and a message always is. Where a question asks what followed, such a name means the
first of its events; where it asks what came before, the last.
"""

from difflib import get_close_matches
from itertools import islice
from typing import Literal, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ..causality.computation import DELIVER, RECEIVE, SEND
from ..causality.linearization import Ints
from .history import History, printable
from .naming import ID, KINDS, MESSAGE, AmbiguousName, UnknownName

End: TypeAlias = Literal["first", "last"]

MOST_COMPARED = 20_000  # Names that a misspelt name is compared with; comparing more would take seconds


def find_event(history: History, text: str, end: End = "last") -> int:
    """The event with this name; UnknownName if there is none, AmbiguousName if there are several."""
    for kind, fits in KINDS.items():
        found = _events(history, fits(history.table, history.attribute, text))
        if not found:
            continue
        if kind == ID:
            events = found
        elif kind == MESSAGE:
            messages: dict[int, list[int]] = {}
            for e in found:
                messages.setdefault(int(history.union.message[e]), []).append(e)
            events = [e for of in messages.values() for e in _of_message(history, of, end)]
        else:
            events = [thing[0 if end == "first" else -1] for thing in _things(history, found)]
        if len(events) == 1:
            return events[0]
        raise AmbiguousName(text, (_told(history, e) for e in events))
    raise UnknownName(_unknown(history, text))


def find_request(history: History, text: str) -> int:
    """The number of the request that this text names by id, a beginning of the id, or one of its events."""
    codes, names = history.requests
    exact = [number for number, name in enumerate(names) if name == text]
    starting = [number for number, name in enumerate(names) if text and name.startswith(text)]
    for found in (exact, starting):
        if len(found) == 1:
            return found[0]
        if found:
            roots = (history.occurrence(int(np.argmax(codes == number))) for number in found)
            told = ((printable(names[n]), str(root)) for n, root in zip(found, roots, strict=True))
            raise AmbiguousName(text, told)
    request = int(codes[find_event(history, text)])
    if request < 0:
        raise UnknownName(f"{text!r} is an event that belongs to no request: it has no attribute `trace`")
    return request


def _events(history: History, mask: pa.Array | pa.ChunkedArray) -> list[int]:
    """The events of these rows, in topological order."""
    rows = np.flatnonzero(pc.fill_null(mask, False).to_numpy(zero_copy_only=False))
    return sorted(history.event_of_row[rows].tolist())


def _of_message(history: History, events: list[int], end: End) -> list[int]:
    """Of the events of a message, those that its name means: the send, or the deliveries."""
    for kind in (SEND, DELIVER, RECEIVE) if end == "first" else (DELIVER, RECEIVE):
        if chosen := [e for e in events if history.union.kind[e] == kind]:
            return chosen
    return events


def _things(history: History, events: list[int]) -> list[list[int]]:
    """Group these events by span; an event of no span is a group by itself.

    The events of one span at one place are one group. Client and server may share a span id: their events are
    two groups. A service may run one span on several processes: those events are one group.
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
    return [[e] for e, of in zip(events, keys, strict=True) if of[0] is None] + [*spans.values()]


def _told(history: History, e: int) -> tuple[str, str]:
    """A name that finds the event, and a description of it."""
    occurrence = history.occurrence(e)
    several = (_counts(history, occurrence.process) >= occurrence.seq).sum() > 1
    name = f"{occurrence.computation}:{occurrence.id}" if several else occurrence.id
    about = str(occurrence).removeprefix(printable(occurrence.id)).strip()
    return printable(name), f"{about}, request {printable(occurrence.trace)}" if occurrence.trace else about


def _unknown(history: History, text: str) -> str:
    name, mark, number = text.rpartition("#")
    if mark and number.isascii() and number.isdigit():
        counts = _counts(history, name)
        if counts.size:
            return f"there is no event {text!r}: process {name!r} has the events 1 to {counts.max()}"
    near = get_close_matches(text, _names(history, text), n=3, cutoff=0.5)
    reason = f"nothing in the trace is called {text!r}: no process#seq, span, message or label"
    return f"{reason}; nearest: {', '.join(map(repr, near))}" if near else reason


def _counts(history: History, process: str) -> Ints:
    """How many events each process with this name has, one per computation."""
    c = history.union
    mine = [p for p, name in enumerate(c.process_names) if name == process]
    counts: Ints = np.diff(c.chain_offsets)[mine]
    return counts[counts > 0]


def _names(history: History, text: str) -> list[str]:
    """Names that `text` may be a misspelling of: first the event ids of processes that it may mean."""
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
