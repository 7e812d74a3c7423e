"""Whose failures a node of a topology has recorded in its journal, and who failed last by those records
(ordering/last_to_fail.py).

Nobody sees what a node does about a failure before the frame or the command that told of it is journaled, and
its snapshots keep whom it has ever heard of. So a journal is searched without being replayed, for which its
topology would be needed.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from ..core.destinations import unpack
from ..core.errors import LocalProtocolError
from ..ordering.last_to_fail import perhaps_last
from ..wire import site_news
from .errors import JournalError
from .inputs import Input, read_entries
from .journal import Journal
from .kernel import snapshot_head


class Record(NamedTuple):
    """The owner of a journal, and the names of those that it had heard to have failed for good."""

    name: str
    failed: frozenset[str]


def read_record(path: Path) -> Record:
    """Raises JournalError if it cannot be read, or is in use."""
    if not path.is_file():
        raise JournalError(f"{path}: no such file")
    journal = Journal(path)
    try:
        name, failed = journal.owner(), set[str]()
        state = journal.snapshot()
        if state is not None:
            head, _ = snapshot_head(state)
            names = head["members"]["members"]
            failed |= {names[index] for index in head["site"][0]["failed"]} if "site" in head else set()
        for _, entries in journal.batches():
            for kind, _, data in read_entries(entries):
                failed |= _told(kind, data)
        return Record(name, frozenset(failed))
    except (ValueError, KeyError, IndexError) as error:
        raise JournalError(f"{path}: cannot be read ({error}); was it written by another version?") from error
    finally:
        journal.close()


def _told(kind: int, data: bytes) -> set[str]:
    """Whom an input declares to have failed."""
    text = ""
    if kind == Input.SITE_PROPOSED:
        text = data.decode()
    elif kind == Input.FRAME_RECEIVED and data.startswith(site_news.HEAD):
        news = site_news.decode(data)
        text = news.text if isinstance(news, site_news.SuccessionProposed) else ""
    said = json.loads(text).get("succession") if text else None
    return {said[0]} if said else set()


class LastToFail(NamedTuple):
    last: tuple[str, ...]  # who failed last, as far as is known
    awaited: tuple[str, ...]  # those whose journals are needed to be sure


def last_of(records: Sequence[Record], members: Sequence[str]) -> LastToFail:
    """Who of these members failed last, by the records of some of them."""
    if unknown := sorted({record.name for record in records} - set(members)):
        raise LocalProtocolError(f"{unknown[0]!r} is not among the members {', '.join(members)}")
    index = {name: i for i, name in enumerate(members)}
    recorded = {
        index[record.name]: sum(1 << index[name] for name in record.failed if name in index)
        for record in records
    }
    everybody = (1 << len(members)) - 1
    last, awaited = perhaps_last(everybody, recorded)
    return LastToFail(tuple(members[i] for i in unpack(last)), tuple(members[i] for i in unpack(awaited)))
