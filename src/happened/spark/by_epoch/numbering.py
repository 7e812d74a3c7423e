"""Whether the events of each process are numbered 1, 2, … without gaps, over all splits.

A split reports the runs of consecutive numbers it has of each process: one run, in a trace written as it
happened.
"""

import pickle
import zlib
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from ...causality.linearization import Ints
from ..tasks import TraceFault


class Chain(NamedTuple):
    process: str
    events: int
    distinct: int
    last: int


def runs(process: Ints, seq: Ints) -> tuple[Ints, Ints, Ints]:
    """(process, first seq, length) of the runs of consecutive seqs."""
    order = np.lexsort((seq, process))
    process, seq = process[order], seq[order]
    begins = np.flatnonzero((np.diff(process, prepend=-1) != 0) | (np.diff(seq, prepend=-1) != 1))
    return process[begins], seq[begins], np.diff(begins, append=process.size)


def runs_by_bucket(
    names: Sequence[str], process: Ints, seq: Ints, others: Ints, buckets: int
) -> Iterator[tuple[int, bytes]]:
    """Give every process to the bucket of its name; `others` are processes that may have no event."""
    of, first, length = runs(process, seq)
    present = np.union1d(of, others)
    bucket_of = {p: zlib.crc32(names[p].encode()) % buckets for p in present.tolist()}
    home = np.array([bucket_of[p] for p in of.tolist()], np.int64)
    for bucket in sorted({*bucket_of.values()}):
        mine = [p for p, b in bucket_of.items() if b == bucket]
        here = home == bucket
        local = np.searchsorted(np.array(mine), of[here])
        yield bucket, pickle.dumps(([names[p] for p in mine], local, first[here], length[here]))


def settle_chains(blobs: Iterable[bytes]) -> list[Chain]:
    """The chains of the processes of a bucket."""
    parts = [pickle.loads(blob) for blob in blobs]
    names = sorted({name for part in parts for name in part[0]})
    index = {name: i for i, name in enumerate(names)}
    code = np.concatenate([np.array([index[name] for name in part[0]], np.int64)[part[1]] for part in parts])
    first, length = (np.concatenate([part[i] for part in parts]) for i in (2, 3))
    order = np.lexsort((first, code))
    code, first, length = code[order], first[order], length[order]
    at = np.searchsorted(code, np.arange(len(names) + 1))
    return [_chain(name, first[a:b], length[a:b]) for name, a, b in zip(names, at[:-1], at[1:], strict=True)]


def _chain(name: str, first: Ints, length: Ints) -> Chain:
    if not first.size:
        return Chain(name, 0, 0, 0)
    ends = np.maximum.accumulate(first + length - 1)
    before = np.concatenate([[0], ends[:-1]])
    distinct = int(np.maximum(first + length - 1 - np.maximum(before, first - 1), 0).sum())
    return Chain(name, int(length.sum()), distinct, int(ends[-1]))


def fault_of(chains: Sequence[Chain], computation: str) -> TraceFault | None:
    """What is wrong with the numbers of a computation's events; repeated numbers are reported first."""
    repeated = [chain for chain in chains if chain.events > chain.distinct]
    for chain in repeated or chains:
        if not chain.events == chain.last == chain.distinct:
            what = "two different rows share one seq" if repeated else "seq has a gap"
            reason = (
                f"{what}: process {chain.process!r} of computation {computation!r} has {chain.events} "
                f"events, {chain.distinct} different seqs, the last {chain.last}; number the events of "
                "each process 1, 2, … (two processes under one name look like this too)"
            )
            return TraceFault(reason)
    return None
