"""What a node reports about itself: held messages, statistics, and health."""

from collections.abc import Sequence
from typing import Any

from .hosting import Hosting
from .lifecycle import State
from .message import Health, Pending
from .running import Running


def pending(running: Running) -> list[Pending]:
    names = running.members.names
    return [
        Pending(
            f"{names[held.message.sender]}:{held.message.clock}",
            tuple(f"{names[sender]}:{clock}" for sender, clock in held.waits_for),
            held.since,
        )
        for held in running.engine.pending()
    ]


def stats(running: Running, hosting: Hosting) -> dict[str, Any]:
    """Statistics of the engine, the links and the commits; the node adds those that only it knows."""
    engine = running.engine
    return {
        "frames_received": hosting.frames_received,
        "frames_duplicate": hosting.frames_duplicate,
        "commits": running.commits.count,
        "refused": hosting.refused,
        "state": running.life.state.value,
        "multicasts": engine.sent,
        "deliveries": engine.delivered,
        "events": engine.events,
        "unacknowledged": len(engine.unacknowledged),
        "held": engine.machine.pending_count,
        "held_bytes": engine.held_bytes,
        "queued": engine.machine.queued,
        "queued_bytes": engine.queued_bytes + engine.machine.kept_bytes,
        "staged_bytes": engine.staged,
        "failures": running.connections.troubles,
        "quarantined": len(running.quarantine.frames()),
        "peers": {
            name: {
                "outbox_frames": len(outbox),
                "outbox_bytes": outbox.bytes,
                "parked_bytes": outbox.parked.bytes,
                "sent": outbox.released,
                "acknowledged": outbox.acknowledged,
                "received": engine.inboxes[link].durable,
                "paused": link in running.paused,
                "calling": name in running.connections.calling,
                "called": name in running.connections.called,
                "gone": link in engine.gone,
            }
            for link, outbox in engine.outboxes.items()
            for name in (running.members.names[link],)
        },
    }


def health(running: Running, why_wait: str | None, transfers: Sequence[str]) -> Health:
    """`why_wait`: why multicasts wait, or None; `transfers`: problems with state transfers."""
    problems = [*transfers] if why_wait is None else [f"{why_wait}: multicasts wait", *transfers]
    engine, members = running.engine, running.members
    away = [
        link
        for link in engine.present_links()
        if members.is_linked(link) and members.names[link] not in running.connections.calling
    ]
    for link in away:
        reasons = list(running.connections.troubles_with(members.names[link]))
        problems.append(f"no link to {members.names[link]}" + (f": {reasons[-1]}" if reasons else ""))
    behind = [link for link in away if engine.outboxes[link]]
    for each in running.quarantine.frames():
        way = "to" if each.outgoing else "from"
        problems.append(f"frame {each.number} {way} {each.peer} is set aside: {each.reason}")
    return Health(True, why_wait is None and not behind, tuple(problems))


def health_at_rest(state: State, problems: Sequence[str]) -> Health:
    """The health of a node that is not running."""
    return Health(state in (State.NEW, State.REPLAYING), False, (*problems, state.value))
