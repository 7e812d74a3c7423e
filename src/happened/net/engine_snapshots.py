"""An engine's state as bytes: a header in JSON, the machine's own snapshot, frames and payloads."""

import json
from collections import deque
from collections.abc import Iterable
from typing import Any, Protocol

from ..core.errors import LocalProtocolError
from ..ordering import Machine
from .batch import Delivery
from .link_routes import Routes
from .links import Links
from .member_changes import MemberChanges
from .serialized import Serialization
from .site_changes import SiteChanges
from .state_transfer import Transfers
from .tracked import Tracking


class Durable(Protocol):
    """An engine, as far as it survives."""

    machine: Machine
    tracking: Tracking | None
    serialization: Serialization | None
    links: Links
    members: MemberChanges
    routes: Routes
    sites: SiteChanges | None
    transfers: Transfers
    unacknowledged: dict[int, Delivery]
    unacknowledged_bytes: int
    unsent: deque[int]
    events: int
    sent: int
    delivered: int
    is_dirty: bool

    def absent(self) -> set[int]: ...
    def remember(self, delivery: Delivery) -> None: ...
    def count_held(self) -> None: ...
    def restore_unsent(self, sizes: Iterable[int]) -> None: ...


def snapshot_parts(engine: Durable) -> list[bytes]:
    """A snapshot, at a cut, as pieces that another thread can put together: copying them takes most of the
    time."""
    if engine.is_dirty:
        raise LocalProtocolError("a snapshot is taken at a cut")
    machine = engine.machine.snapshot()
    links, frames = engine.links.state()
    blobs = [machine, *frames, *(delivery.payload for delivery in engine.unacknowledged.values())]
    head = {
        **engine.members.state(),
        "events": engine.events,
        "sent": engine.sent,
        "delivered": engine.delivered,
        "unsent": list(engine.unsent),
        "machine": len(machine),
        "links": links,
        "lives": engine.links.lives.state(),
        "unacknowledged": [
            [*each[:3], len(each.payload), *([each.history] if each.history else [])]
            for each in engine.unacknowledged.values()
        ],
    }
    if engine.sites is not None:
        head["site"] = engine.sites.state()
        head["witnessing"], frames = engine.sites.witnessing.state()
        blobs += frames
    if engine.serialization is not None:
        head["token"] = engine.serialization.token.state()
    if engine.tracking is not None:
        blobs.append(engine.tracking.snapshot())
        head["tracker"] = len(blobs[-1])
    told, payloads = engine.transfers.state()
    head |= told
    blobs += payloads
    text = json.dumps(head, separators=(",", ":")).encode()
    return [len(text).to_bytes(4, "big"), text, *blobs]


def snapshot_head(data: bytes) -> tuple[dict[str, Any], int]:
    """The header of a snapshot, and where it ends."""
    end = 4 + int.from_bytes(data[:4], "big")
    return json.loads(data[4:end]), end


def restore(engine: Durable, data: bytes) -> None:
    """Replace the state of an engine by that of the one which made this snapshot."""
    head, position = snapshot_head(data)

    def take(length: int) -> bytes:
        nonlocal position
        position += length
        return data[position - length : position]

    engine.members.restore(head)
    engine.events, engine.sent, engine.delivered = head["events"], head["sent"], head["delivered"]
    if engine.sites is not None and "site" in head:
        engine.sites.restore(head["site"])
        engine.routes.stand(engine.sites.site.place)
        if engine.sites.change is not None and engine.sites.change.succession is not None:
            engine.routes.expect_heir(engine.sites.change.succession)
    engine.machine.restore(take(head["machine"]))
    if engine.serialization is not None:
        engine.serialization.token.restore(head["token"])
    engine.links.restore(head["links"], take)
    engine.links.lives.restore(head["lives"])
    _restore_deliveries(
        engine,
        (
            Delivery(number, sender, clock, take(length), *history)
            for number, sender, clock, length, *history in head["unacknowledged"]
        ),
    )
    if engine.sites is not None and "witnessing" in head:
        engine.sites.witnessing.restore(head["witnessing"], take)
        engine.sites.witnessing.hold_back_again(engine.links.outboxes, engine.absent())
    if engine.tracking is not None:
        engine.tracking = engine.tracking.restored(take(head["tracker"]), len(engine.members.roster))
    engine.transfers.restore(head, take)
    engine.count_held()
    engine.restore_unsent(head["unsent"])


def _restore_deliveries(engine: Durable, deliveries: Iterable[Delivery]) -> None:
    engine.unacknowledged, engine.unacknowledged_bytes = {}, 0
    for delivery in deliveries:
        engine.remember(delivery)
