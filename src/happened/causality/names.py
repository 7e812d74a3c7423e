"""Names as numbers: codes into the distinct names of a column, and hashes that are equal in all tasks."""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from .compiled import compiled
from .linearization import Ints, offsets_of


def flatten(lists: pa.ChunkedArray) -> tuple[pa.Array, Ints]:
    """The members of all lists, and the row that each member belongs to."""
    rows = pc.list_parent_indices(lists).to_numpy().astype(np.int64)
    members = pc.list_flatten(lists)
    return members.combine_chunks(), rows


def nested(counts: Ints, members: pa.Array | Ints, kind: pa.DataType) -> pa.ListArray:
    """Consecutive members as lists; `counts` gives the length of each list."""
    return pa.ListArray.from_arrays(offsets_of(counts).astype(np.int32), members, type=kind)


def encode_names(column: pa.ChunkedArray) -> tuple[Ints, pa.Array]:
    """Codes into the distinct names, which are in order of first appearance; -1 for null."""
    encoded = column.dictionary_encode().unify_dictionaries()
    codes = [pc.fill_null(chunk.indices, -1).to_numpy() for chunk in encoded.chunks]
    if not codes:
        return np.empty(0, np.int64), pa.array([], pa.string())
    return np.concatenate(codes).astype(np.int64), encoded.chunk(0).dictionary


def codes_of(*columns: pa.Array | pa.ChunkedArray) -> tuple[list[Ints], list[str]]:
    """Several columns as codes into one sorted list of names, which does not depend on the order of rows."""
    chunks = [column.chunks if isinstance(column, pa.ChunkedArray) else [column] for column in columns]
    codes, names = encode_names(pa.chunked_array([chunk for of in chunks for chunk in of], type=pa.string()))
    ends = np.cumsum([len(column) for column in columns])[:-1]
    known = names.to_pylist()
    order = sorted(range(len(known)), key=known.__getitem__)
    rank = np.empty(len(known), np.int64)
    rank[order] = np.arange(len(known))
    return np.split(rank[codes], ends), [known[i] for i in order]


def hashes(names: pa.Array | Sequence[str]) -> Ints:
    """A 64-bit hash of each name, equal in every process (FNV-1a, with a final mix: any bits are usable)."""
    names = pa.array(names, pa.string()) if not isinstance(names, pa.Array) else names
    if not len(names):
        return np.empty(0, np.uint64)
    _, offsets, data = names.buffers()
    ends = np.frombuffer(offsets, np.int32, len(names) + 1, names.offset * 4)
    text = np.frombuffer(data, np.uint8) if data is not None and data.size else np.zeros(1, np.uint8)
    found: Ints = _hash_rows(ends, text)
    return found


@compiled
def _hash_rows(ends, text):  # type: ignore[no-untyped-def]
    found = np.empty(ends.size - 1, np.uint64)
    for i in range(found.size):
        value = np.uint64(0xCBF29CE484222325)
        for k in range(ends[i], ends[i + 1]):
            value = (value ^ np.uint64(text[k])) * np.uint64(0x100000001B3)
        value = (value ^ (value >> np.uint64(33))) * np.uint64(0xFF51AFD7ED558CCD)
        found[i] = value ^ (value >> np.uint64(33))
    return found
