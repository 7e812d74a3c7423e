"""Brings frames that are parked on disk back into memory, as the peer takes those before them.

Bounds     of each link, frames are read while half of the limit of an outbox is free, and as many as fit; one
           reading at a time for each link. Rows on disk go once the peer has acknowledged what is in them.
"""

import asyncio
from collections.abc import Callable
from functools import partial

from .commits import Commits
from .engine import Engine
from .link import Outbox


class Unparking:
    """loaded   is told of each link that has more to send
    failed   is told why frames cannot be read
    """

    def __init__(
        self,
        engine: Engine,
        commits: Commits,
        loaded: Callable[[int], None],
        failed: Callable[[BaseException], None],
    ) -> None:
        self._links, self._commits = engine.links, commits
        self._loaded, self._failed = loaded, failed
        self._under_way: set[int] = set()

    def notice(self) -> None:
        """A peer has taken frames, or a batch is durable."""
        links = self._links
        for link in links.parked - self._under_way:
            outbox = links.outboxes[link]
            if outbox.wants_parked(links.full_above):
                self._under_way.add(link)
                after = outbox.loaded
                future = self._commits.read_parked(link, after, links.full_above - outbox.bytes)
                future.add_done_callback(partial(self._read, link, outbox, after))

    def _read(self, link: int, outbox: Outbox, after: int, done: "asyncio.Future[list[bytes]]") -> None:
        self._under_way.discard(link)
        if done.cancelled():
            return
        if (error := done.exception()) is not None:
            self._failed(error)
        elif self._links.outboxes.get(link) is outbox:  # and not that of somebody who has its index now
            self._links.unpark(link, after + 1, done.result())
            self._loaded(link)
            self.notice()
