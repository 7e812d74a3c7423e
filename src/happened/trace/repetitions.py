"""Remove rows that repeat another row exactly, as after an export that ran twice.

In    rows of trace.SCHEMA that passed `validate_rows`
Out   the rows without repetitions, keeping the first of equal rows, and the number of removed rows
Cost  one sort by (computation, process, seq); only rows with the same three are compared in other columns

Equal means equal in every column: lists by their members in order, maps by their entries in any order.
"""

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

Ints = np.ndarray[Any, np.dtype[Any]]

NAMED = ("computation", "process", "seq")


def without_repetitions(table: pa.Table) -> tuple[pa.Table, int]:
    if table.num_rows < 2:
        return table, 0
    event = _combined([_codes(table[name]) for name in NAMED])
    shared = np.flatnonzero(np.bincount(event)[event] > 1)
    if not shared.size:
        return table, 0
    rows = table.take(pa.array(shared))
    others = [_codes(rows[name]) for name in table.column_names if name not in NAMED]
    same = _combined([event[shared], *others])
    _, first = np.unique(same, return_index=True)
    repeated = np.delete(shared, first)
    if not repeated.size:
        return table, 0
    kept = np.ones(table.num_rows, bool)
    kept[repeated] = False
    return table.filter(pa.array(kept)), repeated.size


def _combined(codes: list[Ints]) -> Ints:
    """One number per row; rows that are equal in all of these columns get the same number."""
    rows = codes[0]
    for each in codes[1:]:
        _, rows = np.unique(rows * (int(each.max()) + 1) + each, return_inverse=True)
    return rows


def _codes(values: pa.ChunkedArray | pa.Array) -> Ints:
    """A number from 0 on for each value, the same for equal values; 0 for null."""
    array = values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values
    if not len(array):
        return np.empty(0, np.int64)
    null = pc.is_null(array).to_numpy(zero_copy_only=False)
    if pa.types.is_struct(array.type):
        return np.where(null, 0, _combined([_codes(field) for field in array.flatten()]) + 1)
    if pa.types.is_map(array.type):
        entry = pa.struct([("key", array.type.key_type), ("value", array.type.item_type)])
        return np.where(null, 0, _codes_of_lists(array.cast(pa.list_(entry)), sort=True) + 1)
    if pa.types.is_list(array.type):
        return np.where(null, 0, _codes_of_lists(array, sort=False) + 1)
    indices = array.dictionary_encode().indices.cast(pa.int64())
    codes: Ints = pc.add(pc.fill_null(indices, -1), 1).to_numpy(zero_copy_only=False)
    return codes


def _codes_of_lists(lists: pa.Array, *, sort: bool) -> Ints:
    """Numbers for lists, equal for equal lists; null equals an empty list; `sort` ignores the order."""
    lengths = pc.fill_null(pc.list_value_length(lists), 0).to_numpy(zero_copy_only=False).astype(np.int64)
    members = _codes(pc.list_flatten(lists))
    if sort:
        members = members[np.lexsort((members, np.repeat(np.arange(len(lists)), lengths)))]
    # Lists of numbers are equal if their bytes are, and Arrow can number byte strings.
    offsets = np.concatenate([[0], np.cumsum(lengths)]) * members.itemsize
    buffers = [None, pa.py_buffer(offsets.astype(np.int64)), pa.py_buffer(np.ascontiguousarray(members))]
    texts = pa.Array.from_buffers(pa.large_binary(), len(lists), buffers)
    codes: Ints = texts.dictionary_encode().indices.to_numpy(zero_copy_only=False).astype(np.int64)
    return codes
