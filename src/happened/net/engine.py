"""The kernel of a node together with the layers that the node uses.

    routes, sites   if a topology gives the routes: link_routes.py, site_changes.py
    serialization   if sends must be serialized: a process multicasts only in its turn (serialized.py)
    transfers       newcomers may begin with the application's state at another process: state_transfer.py
    unordered       messages outside of all orders, which the machine only counts: qualified.py
    qualified       labels, priorities and histories of incomplete orders: qualified.py
    tracking        messages carry a tracker's piggybacks, and relevant events are recorded: tracked.py
    signed          messages are signed by their origin and checked when they arrive: signed.py
    sharing         a medium carries frames that are the same on several links: `share_frames`

A layer that wraps another one is attached after it: a tracker's piggybacks wrap what was signed.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from ..core.effects import Send
from ..core.errors import RemoteProtocolError
from ..ordering import needed
from ..ordering.capabilities import Expires
from .batch import Input, Recorder
from .kernel import Kernel
from .link_routes import Routes
from .qualified import Qualified, Unordered
from .serialized import Serialization
from .signed import Signed, SignedOrdered
from .site import Site
from .site_changes import SiteChanges
from .state_transfer import Transfers
from .tracked import MARK as TRACKED
from .tracked import Tracking, refuse_piggybacks

CLOCK_SKEW = 24 * 3600 * 10**9
"""Nanoseconds by which the clocks of two machines may differ."""


class Engine(Kernel):
    """A kernel with its layers. `tracker`: a tracking protocol's name, or None; `site`: the process's place
    in the topology, if there is one; `signed`: signs messages; `shares`: a medium carries frames."""

    __slots__ = (
        "_read_any",
        "qualified",
        "routes",
        "serialization",
        "signed",
        "sites",
        "tracking",
        "transfers",
        "unordered",
    )

    def __init__(
        self,
        name: str,
        members: Sequence[str],
        protocol: str,
        options: Mapping[str, Any] | None = None,
        recorder: Recorder | None = None,
        journaled: bool = True,
        tracker: str | None = None,
        site: Site | None = None,
        signed: Signed | None = None,
        shares: bool = False,
    ) -> None:
        options = dict(options or {}) | ({"place": site.place} if site else {})
        super().__init__(name, members, protocol, options, recorder, journaled)
        self.inputs[Input.EXPIRED] = lambda number, data: self.expire()
        self.frames[TRACKED] = refuse_piggybacks
        self.transfers = Transfers(self)
        self.routes = Routes(options.get("place"))
        if self.routes.place:
            self.routes.attach(self)
        if self.facts.order.is_total:
            self._read_any, self.read = self.read, self._read_timestamped
        self.qualified = Qualified(self) if self.facts.qualifier.keyword else None
        self.serialization = Serialization(self) if self.facts.assumes.serialized else None
        self.sites: SiteChanges | None = SiteChanges(self, site, self.routes) if site else None
        self.signed = SignedOrdered(self, signed, is_tracked=bool(tracker)) if signed else None
        self.unordered = Unordered(self, self.routes, self.signed)
        self.tracking = Tracking(self, tracker, shares=shares) if tracker else None
        if shares:
            share_frames(self)

    def _read_timestamped(self, link: int, frame: bytes) -> Any:
        """Read a message, and refuse a total-order timestamp that no process can have reached.

        Timestamps grow by one per message, and no system has sent one per nanosecond since 1970. The bound
        grows faster than timestamps do and does not depend on messages received: what one process accepts,
        another accepts too, once its clock is there. A liar who goes to the bound leaves more than 2^62 for
        the rest. A journaled message was accepted, and is replayed without this check.
        """
        message = self._read_any(link, frame)
        timestamp = getattr(message, "timestamp", 0)
        if timestamp > self.time + CLOCK_SKEW and not self.replays:
            raise RemoteProtocolError(
                f"no message can have timestamp {timestamp} yet: somebody lies, or a clock is off"
            )
        return message

    @property
    def has_turn(self) -> bool:
        """Whether the token, if sends need one, lets this process multicast now."""
        return not self.serialization or self.serialization.has_turn

    def expire(self) -> None:
        """Forget what was known at the last call: it is delivered everywhere by now (running.py)."""
        needed(self.machine, Expires).expire()
        self.stage(Input.EXPIRED, 0)


def share_frames(kernel: Kernel) -> None:
    """Note in `shared` each frame that is sent, with its link number on every link that has it."""
    put_each, links = kernel.put_each, kernel.links

    def put_and_note(sends: Sequence[Send[Any]], frames: Sequence[bytes]) -> list[int]:
        numbers = put_each(sends, frames)
        alike: dict[bytes, dict[int, int]] = {}
        for (to, _), frame, number in zip(sends, frames, numbers, strict=True):
            if to not in links.parked:  # only the link sends frames that are on disk
                alike.setdefault(frame, {})[to] = number
        kernel.shared += alike.items()
        return numbers

    kernel.put_each = put_and_note
