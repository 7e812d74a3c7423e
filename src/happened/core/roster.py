"""A roster maps names of processes, which users see, to dense indices, which machines use.

A process that joins gets the next index; one that leaves keeps its index, because messages of others may
still name it. When no message can name it any more, the index may be recycled. A later process of the same
name is a new process.
"""

from collections.abc import Iterable, Iterator

from .errors import LocalProtocolError


class Roster:
    def __init__(self, names: Iterable[str] = ()) -> None:
        self._names: list[str] = []
        self._index: dict[str, int] = {}  # present processes only
        self._former: set[str] = set()  # departed processes whose index was recycled
        for name in names:
            self.join(name)

    def __len__(self) -> int:
        """How many indices were assigned; machines of this system have this n."""
        return len(self._names)

    def __iter__(self) -> Iterator[str]:
        """The present processes, in order of joining."""
        return iter(self._index)

    def __contains__(self, name: object) -> bool:
        return name in self._index

    def join(self, name: str, index: int | None = None) -> int:
        """Assign an index to a new process: the next one, or the recycled one given as `index`."""
        if name in self._index:
            raise LocalProtocolError(f"{name!r} is already a member; every process needs a name of its own")
        if index is None or index == len(self._names):
            index = len(self._names)
            self._names.append(name)
        elif self._names[index] in self._index:
            raise LocalProtocolError(f"index {index} belongs to {self._names[index]!r}, who is present")
        else:
            self._former.add(self._names[index])
            self._names[index] = name
        self._index[name] = index
        return index

    def ever(self) -> set[str]:
        """The names of all processes, past and present."""
        return {*self._names, *self._former}

    @property
    def former(self) -> frozenset[str]:
        """The names of departed processes whose index was recycled."""
        return frozenset(self._former)

    def remember(self, names: Iterable[str]) -> None:
        """Restore the names that `former` returned."""
        self._former.update(names)

    def leave(self, name: str) -> int:
        index = self.index(name)
        del self._index[name]
        return index

    def index(self, name: str) -> int:
        try:
            return self._index[name]
        except KeyError:
            present = ", ".join(self._index) or "nobody"
            raise LocalProtocolError(f"no process named {name!r}; present: {present}") from None

    def name(self, index: int) -> str:
        """The name of a process, also of one that has left."""
        if not 0 <= index < len(self._names):
            raise LocalProtocolError(f"no process has index {index}; there were {len(self._names)}")
        return self._names[index]
