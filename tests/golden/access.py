"""Everything the golden tests need of the package, imported in this one place, and how fixtures are read.

The recorded files are what a release must go on reading; the names below are how it is asked to.
"""

import json
from pathlib import Path
from typing import Any

from happened import ordering, tracking, wire
from happened.core.effects import Send
from happened.core.places import restored as place_from
from happened.ordering.causal.incomplete import Labelled, Priorities

HERE = Path(__file__).parent
UNREGISTERED = {"labelled": Labelled, "priorities": Priorities}
"""Incomplete orders: they have frames and snapshots, and no entry in the registry."""


def load(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


def stories(folder: str) -> dict[str, Path]:
    """The recorded stories of a folder by name."""
    return {path.stem: path for path in sorted((HERE / folder).glob("*.json"))}


def save(path: Path, document: dict[str, Any]) -> None:
    """Write JSON with one line for each member, and for each item of a list of objects."""
    lines = []
    for key, value in document.items():
        text = json.dumps(value)
        if isinstance(value, list) and value and isinstance(value[0], dict):
            text = "[\n" + ",\n".join("  " + json.dumps(item) for item in value) + "\n ]"
        lines.append(f' "{key}": {text}')
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


def machine(protocol: str, me: int, n: int, options: dict[str, Any]) -> Any:
    """A fresh ordering machine; a place is given as the nested lists it consists of."""
    made = {key: place_from(tuples(value)) if key == "place" else value for key, value in options.items()}
    if protocol in UNREGISTERED:
        return UNREGISTERED[protocol](me, n, **made)
    return ordering.create(protocol, me, n, **made)


def tuples(value: Any) -> Any:
    """Lists as tuples, at every depth."""
    return tuple(map(tuples, value)) if isinstance(value, list) else value


def perform(machine: Any, step: dict[str, Any]) -> list[list[Any]] | None:
    """Give a recorded input to a machine; returns its effects, None where the input has none."""
    match step["input"]:
        case "receive":
            message, _ = wire.decode(bytes.fromhex(step["frame"]))
            return shown_effects(machine.receive(message))
        case "multicast":
            made = machine.multicast(step["to"], bytes.fromhex(step["payload"]), **step.get("with", {}))
            # Version 0.1.0 returns the effects alone, later ones the clock before them.
            return shown_effects(made[1] if isinstance(made, tuple) else made)
        case "hand_over":
            return shown_effects(machine.hand_over(step["to"]))
        case "follow":
            machine.follow(tuples(step["token"]))
        case "join":
            machine.join(step["process"])
        case "leave":
            machine.leave(step["process"])
        case other:
            raise ValueError(f"no recorded input is called {other!r}")
    return None


def shown_effects(effects: Any) -> list[list[Any]]:
    return [
        ["send", effect.to, wire.encode(effect.message).hex()]
        if isinstance(effect, Send)
        else ["deliver", effect.sender, effect.clock, effect.payload.hex()]
        for effect in effects
    ]


def shown_pending(machine: Any) -> list[dict[str, Any]]:
    """What a machine holds, and why; in no order of its own, since a restored machine may have another."""
    held = sorted(machine.pending(), key=lambda each: (each.message.sender, each.message.clock, each.since))
    return [
        {
            "message": [each.message.sender, each.message.clock],
            "waits_for": [list(name) for name in each.waits_for],
            "since": each.since,
        }
        for each in held
    ]


def shown_message(message: Any) -> dict[str, Any]:
    """What a decoded message tells of itself, whatever its protocol."""
    return {
        "sender": message.sender,
        "clock": message.clock,
        "to": sorted(message.to),
        "payload": message.payload.hex(),
        "units": sorted(map(list, message.units())),
        "size": list(message.size()),
        "control_bytes": wire.control_size(message),
    }


def tracker(protocol: str, me: int, n: int) -> Any:
    return tracking.create(protocol, me, n)


def track(machine: Any, step: dict[str, Any]) -> Any:
    """Give a recorded input to a tracker; returns what it tells."""
    match step["input"]:
        case "relevant":
            return shown_timestamp(machine.relevant())
        case "send":
            piggyback = machine.on_send(step["to"])
            forced = piggyback.forced
            return [piggyback.encode().hex(), None if forced is None else shown_timestamp(forced)]
        case "receive":
            machine.on_receive(step["sender"], machine.decode(bytes.fromhex(step["carried"])))
            return None
        case other:
            raise ValueError(f"no recorded input is called {other!r}")


def shown_timestamp(stamp: Any) -> dict[str, Any]:
    vector, predecessors = stamp.vector(), stamp.predecessors()
    return {
        "process": stamp.process,
        "seq": stamp.seq,
        "vector": None if vector is None else list(vector),
        "dependencies": None if stamp.dependencies is None else list(stamp.dependencies),
        "predecessors": None if predecessors is None else sorted(map(list, predecessors)),
        "scalar": stamp.scalar,
        "null": stamp.null,
    }
