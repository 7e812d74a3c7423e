"""A trace that may still be written: read again when it has grown, and the last good state kept."""

import os
import threading
import time
from typing import Any

from ..core.errors import CausalityError, LocalProtocolError
from ..trace import locate
from ..trace.store import StorePath
from .pages import MOST_COMPUTATIONS, Viewed, viewed
from .windows import Windows

SHARE = 4  # of the time, at most one part in so many is spent on reading again


class Followed:
    """The trace at a path. `version` changes when what is shown changes; `trouble` says why it did not.

    A reader may see the delivery of a message before the part with its send is there: then the trace is
    judged as it is, and again when it has grown.
    """

    def __init__(self, path: str, *, order: str = "causal", complete: bool | None = None) -> None:
        self._path = path
        self._order = order
        self._complete = complete
        self._lock = threading.RLock()
        self.trouble = ""
        self.version = ""
        self._next = 0.0
        self._read(self._fingerprint())

    def refresh(self) -> None:
        """Read the trace again if it has grown."""
        with self._lock:
            if time.monotonic() < self._next:
                return
            try:
                found = self._fingerprint()
                if found != self.version:
                    self._read(found)
                self.trouble = ""
            except (CausalityError, OSError) as error:
                self.trouble = f"The trace has changed and cannot be read: {error}"

    def about(self) -> dict[str, Any]:
        with self._lock:
            left = len(self._viewed.computations) - MOST_COMPUTATIONS
            notes = [f"{left:,} smaller computations are left out."] if left > 0 else []
            return self._viewed.about(MOST_COMPUTATIONS, notes)

    def windows(self, computation: int) -> Windows:
        """The windows of the computation with this number in `about`; of the first if there is no such
        number."""
        with self._lock:
            known = self._windows
            if not known:
                raise LocalProtocolError("there are no events yet")
            return known[computation if 0 <= computation < len(known) else 0]

    def _read(self, fingerprint: str) -> None:
        began = time.monotonic()
        self._viewed: Viewed = viewed(self._path, order=self._order, complete=self._complete)
        self._windows = [Windows(each) for each in self._viewed.computations]
        self.version = fingerprint
        ended = time.monotonic()
        self._next = ended + (ended - began) * (SHARE - 1)

    def _fingerprint(self) -> str:
        """A digest of the names, sizes and modification times of the parts: it changes when a part is
        written."""
        at = locate(self._path)
        said = []
        for part in at.parts or (at.root,):
            if isinstance(part, StorePath):
                said.append(str(part))
            else:
                state = os.stat(part)
                said.append(f"{part.name}:{state.st_size}:{state.st_mtime_ns}")
        return f"{len(said)}-{hash(tuple(said)) & (2**63 - 1):x}"
