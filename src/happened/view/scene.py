"""A scene: a range of events of each process of a computation, as the arrays that the page draws from.

Events of a scene are numbered process by process, in order, so that process and seq follow from the number.
Events outside the scene have no number (-1).

Knowledge between processes is stored as steps: for processes p and q, the seqs of p at which its vector's
entry for q grew, and the new values. So the past of an event takes one look-up per process; the same steps
read backwards give its future. The page stores changes instead of events x processes entries.
"""

import base64
import json
import struct
import zlib
from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from ..causality.linearization import Ints
from ..causality.reach import Extent, everything
from ..trace.schema import LISTED
from .prepared import Prepared
from .span_rows import relative, span_rows
from .texts import Texts, attribute_numbers, cut, listed_texts

MOST_STEPS = 6_000_000
"""The most steps of vectors (`_steps`) in a scene: 48 MB in the page's memory. A scene that would need more
steps shows no causal past and future."""

MOST_MEMBERS = 20  # members shown of an event's list
COLUMNS = 1024  # columns of the overview
MOST_OVERVIEW = 4_000_000  # cells of the overview

TYPES = {"int8": "i1", "uint8": "u1", "uint16": "u2", "int32": "i4", "float64": "f8"}
ALIGNMENT = 8
EFFORT = 6  # deflate level: higher ones save a few percent and take twice as long


class _Numbering:
    """Maps events of an extent to their numbers in the scene, and back."""

    def __init__(self, prepared: Prepared, extent: Extent) -> None:
        c = prepared.c
        lengths = np.maximum(extent.end - extent.begin, 0)
        self.offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
        process = np.repeat(np.arange(c.processes), lengths)
        self.process = process
        self.seq = np.arange(self.offsets[-1]) - self.offsets[process] + extent.begin[process] + 1
        self.events = c.chain[c.chain_offsets[process] + self.seq - 1].astype(np.int64)
        self._place = np.full(c.events + 1, -1, np.int32)  # the last entry is for -1
        self._place[self.events] = np.arange(self.events.size)

    def places(self, events: Ints) -> Ints:
        """The numbers in the scene of events of the computation; -1 for those outside and for -1."""
        found: Ints = self._place[events]
        return found


def scene(
    prepared: Prepared, extent: Extent | None = None, window: tuple[int, int] | None = None, note: str = ""
) -> bytes:
    """The scene of an extent, or of the whole computation, packed."""
    return pack(*described(prepared, extent, window, note))


def described(
    prepared: Prepared, extent: Extent | None = None, window: tuple[int, int] | None = None, note: str = ""
) -> tuple[dict[str, Any], dict[str, Ints]]:
    """The header and the arrays of a scene.

    window  the range of levels that the scene holds completely, if it is one of several windows
    note    a remark for readers
    """
    c = prepared.c
    extent = everything(c) if extent is None else extent
    numbering = _Numbering(prepared, extent)
    texts = Texts()
    arrays = _events(prepared, numbering, texts)
    notes = [note] if note else []
    steps = _steps(prepared, extent)
    if steps is None:
        notes.append(
            "Too many events and processes for one page: causal past and future are not shown. Look at a "
            "part of the trace: --past, --future, --window."
        )
    else:
        arrays |= steps
    arrays |= _hasse(prepared, numbering)
    arrays |= _spans(prepared, numbering, notes)
    arrays["critical"] = numbering.places(np.array(prepared.critical_path, np.int64))
    arrays["overview"] = _overview(prepared)
    if texts.left_out:
        notes.append(f"{texts.left_out:,} labels and attributes are left out: they are too long for a page.")
    header = _header(prepared, extent, numbering, texts) | {"notes": notes, "window": window}
    return header, arrays


def _header(prepared: Prepared, extent: Extent, numbering: _Numbering, texts: Texts) -> dict[str, Any]:
    c = prepared.c
    origin = prepared.times[1] if prepared.times else None
    return {
        "computation": cut(c.name, 200),
        "processes": [cut(name, 200) for name in c.process_names],
        "begin": extent.begin.tolist(),
        "lengths": np.diff(numbering.offsets).tolist(),
        "totals": np.diff(c.chain_offsets).tolist(),
        "depth": int(prepared.levels.max(initial=1)),
        "origin": None if origin is None else str(origin),
        "critical_steps": prepared.critical_steps,
        "texts": texts.all,
        "faults": _faults(prepared, numbering),
    }


def _faults(prepared: Prepared, numbering: _Numbering) -> list[dict[str, Any]]:
    c, found = prepared.c, []
    for fault in prepared.faults:
        every = np.array(fault.events + fault.path, np.int64)
        found.append(
            {
                "title": cut(fault.title, 300),
                "told": cut(fault.told, 1000),
                "events": numbering.places(np.array(fault.events, np.int64)).tolist(),
                "path": numbering.places(np.array(fault.path, np.int64)).tolist(),
                "names": [cut(c.event(e).id, 200) for e in fault.events],
                "levels": [int(prepared.levels[every].min()), int(prepared.levels[every].max())],
            }
        )
    return found


def _events(prepared: Prepared, numbering: _Numbering, texts: Texts) -> dict[str, Ints]:
    c, events = prepared.c, numbering.events
    rows = pa.array(c.row[events])
    taken = prepared.table.select(["message", "label", "attributes", *LISTED]).take(rows)
    lengths = np.diff(c.cause_offsets)[events]
    effects = np.repeat(np.arange(events.size), lengths)
    starts = c.cause_offsets[:-1][events] - np.cumsum(lengths) + lengths
    picked = np.repeat(starts, lengths) + np.arange(lengths.sum())
    causes = numbering.places(c.causes[picked])
    inside = causes >= 0
    lost = np.flatnonzero((c.slot_delivery < 0) & (c.slot_send >= 0))
    lost_send = numbering.places(c.slot_send[lost])
    arrays = {
        "kind": c.kind[events].astype(np.uint8),
        "fate": c.fate[events].astype(np.uint8),
        "relevant": c.relevant[events].astype(np.uint8),
        "level": differences(prepared.levels[events]),
        "source": numbering.places(c.source[events]),
        "arrival": numbering.places(prepared.arrivals[events]),
        "causes": causes[inside],
        "effects": effects[inside].astype(np.int32),
        "lost_send": lost_send[lost_send >= 0],
        "lost_dest": c.slot_dest[lost][lost_send >= 0].astype(np.int32),
        "message": texts.numbers_of(taken["message"].to_pylist()),
        "label": texts.numbers_of(taken["label"].to_pylist()),
        "attributes": attribute_numbers(taken["attributes"], _listed(taken), texts),
    }
    if prepared.times is not None:
        arrays["time"] = prepared.times[0][events]
    if prepared.vectors is not None:
        arrays["past_sizes"] = (prepared.vectors[events].sum(axis=1, dtype=np.int64) - 1).astype(np.int32)
    return arrays


def _listed(taken: pa.Table) -> list[dict[str, str]]:
    """The values that the viewer lists before the attributes of each event."""
    columns = [listed_texts(taken[name], MOST_MEMBERS).to_pylist() for name in LISTED]
    return [
        {title: text for title, text in zip(LISTED.values(), row, strict=True) if text is not None}
        for row in zip(*columns, strict=True)
    ]


def _steps(prepared: Prepared, extent: Extent) -> dict[str, Ints] | None:
    """The steps at which one process's knowledge of another grows: pairs p * processes + q with steps, the
    offset of each pair's steps, and for every step the seq of p and the seq of q known from then on."""
    c, vectors = prepared.c, prepared.vectors
    if vectors is None:
        return None
    pairs, starts, at, known, found = [], [], [], [], 0
    for p in np.flatnonzero(extent.end > extent.begin).tolist():
        chain = c.chain[c.chain_offsets[p] + extent.begin[p] : c.chain_offsets[p] + extent.end[p]]
        rows = vectors[chain]
        grown = np.diff(rows, axis=0, prepend=np.zeros((1, rows.shape[1]), rows.dtype)) > 0
        grown[:, p - c.first[p]] = False  # a process knows everything of itself
        q, k = np.nonzero(grown.T)
        new = np.flatnonzero(np.diff(q, prepend=-1))
        pairs.append(p * c.processes + q[new])
        starts.append(found + new)
        at.append(extent.begin[p] + 1 + k)
        known.append(rows[k, q])
        found += q.size
        if found > MOST_STEPS:
            return None
    nothing = np.empty(0, np.int64)
    return {
        "pairs": np.concatenate([nothing, *pairs]).astype(np.float64),
        "starts": np.concatenate([nothing, *starts, [found]]).astype(np.int32),
        "at": differences(np.concatenate([nothing, *at])),
        "known": differences(np.concatenate([nothing, *known])),
    }


def _hasse(prepared: Prepared, numbering: _Numbering) -> dict[str, Ints]:
    if prepared.reduction is None:
        return {}
    effects, causes, levels = prepared.reduction
    effects, causes = numbering.places(effects), numbering.places(causes)
    inside = (effects >= 0) & (causes >= 0)
    return {
        "hasse_effects": effects[inside],
        "hasse_causes": causes[inside],
        "hasse_level": levels[numbering.events].astype(np.int32),
    }


def _spans(prepared: Prepared, numbering: _Numbering, notes: list[str]) -> dict[str, Ints]:
    if prepared.times is None:
        return {}
    rows = span_rows(prepared.c, prepared.table, np.sort(numbering.events))
    if rows.left_out:
        notes.append(f"{rows.left_out:,} spans are left out of the timeline.")
    if not len(rows):
        return {}
    origin = prepared.times[1]
    return {
        "span_first": numbering.places(np.array(rows.first)),
        "span_last": numbering.places(np.array(rows.last)),
        "span_start": relative(rows.start, origin),
        "span_end": relative(rows.end, origin),
        "span_parent": np.array(rows.parent, np.int32),
    }


def _overview(prepared: Prepared) -> Ints:
    """Number of events of each process in each of COLUMNS equal stretches of levels, row by row; wide
    computations have one row for all processes."""
    c = prepared.c
    depth = int(prepared.levels.max(initial=1))
    column = (prepared.levels - 1) * COLUMNS // depth
    wide = c.processes * COLUMNS > MOST_OVERVIEW
    row = np.zeros(c.events, np.int64) if wide else c.process.astype(np.int64)
    counts = np.bincount(row * COLUMNS + column, minlength=(1 if wide else c.processes) * COLUMNS)
    return np.minimum(counts, 65535).astype(np.uint16)


def pack(header: Mapping[str, Any], arrays: Mapping[str, Ints]) -> bytes:
    """Pack arrays and names into one block of bytes for a page, not yet compressed; `assets/scene.js` unpacks
    it.

    4 bytes            length of the header, little endian
    header             JSON: {"arrays": {name: [type, offset, length]}, …whatever else is given}
    arrays             each begins at a multiple of 8; offsets count from the start of the first array
    """
    places, parts, at = {}, [], 0
    for name, values in arrays.items():
        kind = values.dtype.name
        data = np.ascontiguousarray(values, values.dtype.newbyteorder("<")).tobytes()
        places[name] = [TYPES[kind], at, values.size]
        padding = -len(data) % ALIGNMENT
        parts += [data, bytes(padding)]
        at += len(data) + padding
    text = json.dumps({**header, "arrays": places}, separators=(",", ":")).encode()
    text += b" " * (-(len(text) + 4) % ALIGNMENT)
    return b"".join([struct.pack("<I", len(text)), text, *parts])


def compressed(block: bytes) -> bytes:
    return zlib.compress(block, EFFORT)


def as_text(block: bytes) -> str:
    """The block compressed and in base64, which needs no escaping in HTML."""
    return base64.b64encode(compressed(block)).decode()


def differences(values: Ints) -> Ints:
    """The difference of each number from the one before it, as 32-bit integers, which compress better."""
    return np.diff(values, prepend=0).astype(np.int32)
