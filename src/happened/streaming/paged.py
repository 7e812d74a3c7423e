"""Ordered maps in pages: a reader loads the pages it touches, and only those that changed are written.

A state store answers one request after another, each a round trip to another process: a record for each
message would cost a round trip for each message, and one record for everything would be rewritten with
every batch. A page holds up to PAGE entries with neighbouring keys. The directory (the first key of each
page) is part of the small record that every batch reads and writes, and so are the small pages of a
destination (`Drawer`).

Invariant  the pages of a map cover its keys in order; no stored page is empty.
Bound      a map of m entries has at most 2 m / PAGE + 1 pages after inserts alone; a page that entries
           have left stays until it is empty.

Pages are pickled. Like all state of PySpark, they are read from a checkpoint that this program wrote itself.
"""

import pickle
from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

PAGE = 512
DRAWER = 24 * 1024
"""Bytes of pages that stay in the small record: reading them costs about as much as a round trip."""

Key = tuple[Any, ...]


class PageStore(Protocol):
    """Numbered pages of bytes."""

    def read(self, number: int) -> bytes: ...
    def write(self, number: int, data: bytes) -> None: ...
    def remove(self, number: int) -> None: ...


class Numbers:
    """Assigns numbers to the new pages of a destination."""

    def __init__(self, last: int = 0) -> None:
        self.last = last

    def next(self) -> int:
        self.last += 1
        return self.last


class Drawer:
    """A page store that keeps small pages beside the directory, and puts the larger ones into another store.

    Invariant  a page is in the drawer or in the store; a page in the store stays there.
    """

    def __init__(self, store: PageStore, numbers: Numbers, pages: dict[int, bytes]) -> None:
        self._store, self._numbers, self._pages = store, numbers, dict(pages)
        self._last = numbers.last  # pages up to this number are in the store if they are not here

    def read(self, number: int) -> bytes:
        page = self._pages.get(number)
        return self._store.read(number) if page is None else page

    def write(self, number: int, data: bytes) -> None:
        if number in self._pages or number > self._last:
            self._pages[number] = data
        else:
            self._store.write(number, data)

    def remove(self, number: int) -> None:
        if self._pages.pop(number, None) is None:
            self._store.remove(number)

    def flush(self) -> dict[int, bytes]:
        """The smallest pages, as many as fit into DRAWER; the other pages are written to the store."""
        kept: dict[int, bytes] = {}
        room = DRAWER
        for number, data in sorted(self._pages.items(), key=lambda page: len(page[1])):
            room -= len(data)
            if room >= 0:
                kept[number] = data
            else:
                self._store.write(number, data)
        self._pages, self._last = kept, self._numbers.last
        return kept


@dataclass(slots=True)
class _Page:
    number: int
    keys: list[Key]
    values: dict[Key, Any]
    changed: bool


class PagedMap:
    """An ordered map in pages. `read` converts a stored value back, the inverse of `written` in `flush`."""

    def __init__(
        self,
        store: PageStore,
        numbers: Numbers,
        directory: list[tuple[Key, int]],
        read: Callable[[Any], Any] = lambda value: value,
    ) -> None:
        self._store = store
        self._read = read
        self._numbers = numbers
        self._firsts = [first for first, _ in directory]
        self._page_numbers = [number for _, number in directory]
        self._loaded: dict[int, _Page] = {}
        self._dropped: list[int] = []  # stored pages that are now empty
        self._stored = set(self._page_numbers)

    def __bool__(self) -> bool:
        return bool(self._firsts)

    def __contains__(self, key: Key) -> bool:
        return bool(self._firsts) and key in self._page_at(self._place(key)).values

    def get(self, key: Key, default: Any = None) -> Any:
        if not self._firsts:
            return default
        return self._page_at(self._place(key)).values.get(key, default)

    def put(self, key: Key, value: Any) -> None:
        if not self.add(key, value):
            page = self._page_at(self._place(key))
            page.values[key] = value
            page.changed = True

    def add(self, key: Key, value: Any) -> bool:
        """Insert an entry unless the map has its key; returns whether it was inserted."""
        if not self._firsts:
            self._insert_page(0, _Page(self._numbers.next(), [key], {key: value}, True))
            return True
        at = self._place(key)
        page = self._page_at(at)
        if key in page.values:
            return False
        insort(page.keys, key)
        self._firsts[at] = page.keys[0]
        page.values[key] = value
        page.changed = True
        if len(page.keys) > PAGE:
            self._split(at, page)
        return True

    def pop(self, key: Key) -> None:
        """Remove a key, which the map must have."""
        at = self._place(key)
        page = self._page_at(at)
        del page.keys[bisect_left(page.keys, key)]
        del page.values[key]
        page.changed = True
        if not page.keys:
            self._drop(at)

    def pop_between(self, low: Key, high: Key) -> list[tuple[Key, Any]]:
        """Remove and return, in order, the entries with low <= key < high."""
        if not self._firsts or high <= self._firsts[0]:
            return []
        at = self._place(low)
        page = self._page_at(at)
        begin = bisect_left(page.keys, low)
        if begin < len(page.keys) and page.keys[begin] >= high:
            return []
        found: list[tuple[Key, Any]] = []
        while at < len(self._firsts) and self._firsts[at] < high:
            page = self._page_at(at)
            begin, end = bisect_left(page.keys, low), bisect_left(page.keys, high)
            if begin < end:
                taken = page.keys[begin:end]
                found += [(key, page.values.pop(key)) for key in taken]
                del page.keys[begin:end]
                page.changed = True
            if not page.keys:
                self._drop(at)
            else:
                at += 1
        return found

    def first_from(self, key: Key) -> tuple[Key, Any] | None:
        """The first entry whose key is at least `key`; None if there is none."""
        if not self._firsts:
            return None
        at = self._place(key)
        while at < len(self._firsts):
            page = self._page_at(at)
            place = bisect_left(page.keys, key)
            if place < len(page.keys):
                return page.keys[place], page.values[page.keys[place]]
            at += 1
        return None

    def items(self) -> Iterator[tuple[Key, Any]]:
        """All entries in order. Reads every page; the map must not be changed meanwhile."""
        for at in range(len(self._firsts)):
            page = self._page_at(at)
            for key in page.keys:
                yield key, page.values[key]

    def changed_values(self) -> Iterator[Any]:
        """The values of the pages that `flush` will write."""
        for page in self._loaded.values():
            if page.changed:
                yield from page.values.values()

    def flush(self, written: Callable[[Any], Any] = lambda value: value) -> list[tuple[Key, int]]:
        """Write the changed pages, each value converted by `written`; returns the directory."""
        for number in self._dropped:
            self._store.remove(number)
        for page in self._loaded.values():
            if page.changed:
                content = [(key, written(page.values[key])) for key in page.keys]
                self._store.write(page.number, pickle.dumps(content, pickle.HIGHEST_PROTOCOL))
                page.changed = False
                self._stored.add(page.number)
        self._dropped = []
        return list(zip(self._firsts, self._page_numbers, strict=True))

    def _place(self, key: Key) -> int:
        return max(bisect_right(self._firsts, key) - 1, 0)

    def _page_at(self, at: int) -> _Page:
        number = self._page_numbers[at]
        page = self._loaded.get(number)
        if page is None:
            stored = pickle.loads(self._store.read(number))
            values = {key: self._read(value) for key, value in stored}
            page = self._loaded[number] = _Page(number, list(values), values, False)
        return page

    def _insert_page(self, at: int, page: _Page) -> None:
        self._firsts.insert(at, page.keys[0])
        self._page_numbers.insert(at, page.number)
        self._loaded[page.number] = page

    def _split(self, at: int, page: _Page) -> None:
        middle = len(page.keys) // 2
        keys = page.keys[middle:]
        del page.keys[middle:]
        values = {key: page.values.pop(key) for key in keys}
        self._insert_page(at + 1, _Page(self._numbers.next(), keys, values, True))

    def _drop(self, at: int) -> None:
        number = self._page_numbers.pop(at)
        del self._firsts[at]
        del self._loaded[number]
        if number in self._stored:
            self._stored.discard(number)
            self._dropped.append(number)
