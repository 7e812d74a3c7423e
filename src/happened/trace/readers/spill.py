"""Drafts of an import that is larger than memory: kept by computation, on disk once there are many.

Every computation belongs to one of a number of buckets, which are then read one at a time.
"""

import pickle
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from zlib import crc32

from .draft import Draft, packed, unpacked

MOST_HELD = 50_000
"""Drafts in memory before they are written, some 100 MB."""


class Spill:
    """Drafts by bucket, in memory or in `folder`, which is created when needed."""

    def __init__(self, folder: Path, buckets: int) -> None:
        self._folder = folder
        self._held: list[list[Draft]] = [[] for _ in range(buckets)]
        self._count = 0

    def add(self, draft: Draft) -> None:
        self._held[crc32(draft.computation.encode()) % len(self._held)].append(draft)
        self._count += 1
        if self._count >= MOST_HELD and len(self._held) > 1:
            self._write()

    def _write(self) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        for number, drafts in enumerate(self._held):
            if drafts:
                with self._file(number).open("ab") as file:
                    pickle.dump([packed(draft) for draft in drafts], file, 5)
                drafts.clear()
        self._count = 0

    def _file(self, number: int) -> Path:
        return self._folder / f"bucket-{number:06d}"

    def bucket(self, number: int) -> Iterator[Draft]:
        """The drafts of a bucket, in the order in which they came."""
        if self._file(number).exists():
            with self._file(number).open("rb") as file:
                while True:
                    try:
                        values = pickle.load(file)
                    except EOFError:
                        break
                    yield from map(unpacked, values)
        yield from self._held[number]

    def buckets(self) -> Iterable[Iterator[Draft]]:
        return (self.bucket(number) for number in range(len(self._held)))

    def regrouped(self, computations: Mapping[str, str], folder: Path) -> "Spill":
        """The same drafts, in which some computations have other names."""
        if not computations:
            return self
        other = Spill(folder, len(self._held))
        for bucket in self.buckets():
            for draft in bucket:
                draft.computation = computations.get(draft.computation, draft.computation)
                other.add(draft)
        return other
