"""Everything the golden tests need of the package, imported in this one place, and how fixtures are read.

The recorded files are what a release must go on reading; the names below are how it is asked to.
"""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from happened import ordering, trace, tracking, wire
from happened.cli import main
from happened.core.effects import Send
from happened.core.places import restored as place_from
from happened.net import Limits, Node, Plaintext, records
from happened.net.engine import Engine
from happened.net.handshake import Handshake, Mode
from happened.ordering.causal.incomplete import Labelled, Priorities

HERE = Path(__file__).parent
UNREGISTERED = {"labelled": Labelled, "priorities": Priorities}
"""Incomplete orders: they have frames and snapshots, and no entry in the registry."""
NOWHERE = "127.0.0.1:9"
"""The address of peers that are never reached."""


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
            return shown_effects(made.effects)
        case "hand_over":
            return shown_effects(machine.hand_over(step["to"]))
        case "follow":
            machine.follow(tuples(step["token"]))
        case "join":
            machine.join(step["process"])
        case "leave":
            machine.note_departure(step["process"])  # all that `leave` did then
        case "joins":
            return shown_effects(machine.join(step["process"]))
        case "leaves":
            return shown_effects(machine.leave(step["process"]))
        case "is closed":
            return shown_effects(machine.close(step["process"]))
        case "is forgotten":
            machine.forget(step["process"])
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


PLACED = "sequencer"
"""Since 0.3.0 its messages have places, without which a successor could not go on in order. What it read
before is read; what it writes is compared without what is new."""


def as_then(frame: str) -> str:
    """A frame of `sequencer` as versions without places wrote it."""
    message, _ = wire.decode(bytes.fromhex(frame))
    match type(message).__name__:
        case "SequencerOrder":
            message = message._replace(place=(), epoch=0)
        case "SequencerRequest":
            message = message._replace(reached=())
        case "SequencerHandover":
            early = tuple(request._replace(reached=()) for request in message.early)
            message = message._replace(place=0, unsettled=(), early=early)
    return wire.encode(message).hex()


def effects_as_then(effects: list[list[Any]]) -> list[list[Any]]:
    return [
        [kind, to, as_then(*rest)] if kind == "send" else [kind, to, *rest] for kind, to, *rest in effects
    ]


def node_as_then(shown: dict[str, Any]) -> dict[str, Any]:
    """What `shown_node` gives, with the frames of `sequencer` as versions without places wrote them."""
    for link in shown["links"].values():
        link["frames"] = [[number, as_then(frame)] for number, frame in link["frames"]]
    return shown


def snapshot_as_then(snapshot: bytes) -> bytes:
    """A snapshot of `sequencer` without what is new in it."""
    state = json.loads(snapshot)
    for key in ("kept", "entrusted", "recent", "succession", "reports"):
        del state[key]
    state["held"] = [[order[:6], since] for order, since in state["held"]]
    state["ahead"] = [request[:7] for request in state["ahead"]]
    if state["office"] is not None:
        taken, tails, early, *_ = state["office"]
        state["office"] = [taken, tails, [[request[:7], since] for request, since in early]]
    return json.dumps(state, separators=(",", ":"), sort_keys=True).encode()


SURVIVING = ("agreed", "causal-total")
"""Since 0.3.0 they also keep what they need when somebody is expelled, which no version before let happen."""


def snapshot_as_recorded(machine: Any) -> bytes:
    """A snapshot of a machine without what it keeps in case that somebody is expelled."""
    snapshot: bytes = machine.snapshot()
    if machine.facts.name not in SURVIVING:
        return snapshot
    state = json.loads(snapshot)
    del state["finals"], state["expelled"]
    return json.dumps(state, separators=(",", ":"), sort_keys=True).encode()


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


def shown_node(node: Any) -> dict[str, Any]:
    """What a node says of itself, and what its links hold."""
    links = node.stats()["peers"]
    return {
        "members": list(node.members),
        "sent": node.sent,
        "delivered": node.delivered,
        "pending": [
            {"message": p.message, "waits_for": list(p.waits_for), "since": p.since} for p in node.pending()
        ],
        "links": {
            peer: {
                "acknowledged": links[peer]["acknowledged"],
                "received": links[peer]["received"],
                "gone": links[peer]["gone"],
                "incarnation": node.host.hello(peer).knows.hex(),
                "frames": [
                    [number, frame.hex()] for number, frame in node.host.outbox(peer).after(0, 1 << 30)
                ],
            }
            for peer in links
        },
    }


def engine(recorded: dict[str, Any]) -> Engine:
    """p1 of four, after the inputs of its recorded journal."""
    made = Engine("p1", ["p0", "p1", "p2", "p3"], recorded["protocol"])
    for entries in recorded["journal"]:
        made.replay(bytes.fromhex(entries), 0)
    return made


def shown_engine(engine: Engine) -> dict[str, Any]:
    roster = engine.roster
    return {
        "members": [roster.name(index) for index in range(len(roster))],
        "present": list(roster),
        "sent": engine.sent,
        "delivered": engine.delivered,
        "outboxes": {
            str(link): [[number, frame.hex()] for number, frame in outbox.after(outbox.acknowledged, 1 << 30)]
            for link, outbox in engine.outboxes.items()
        },
    }


def node(recorded: dict[str, Any], journal: Path | None) -> Node:
    """A node as it was when its journal was recorded; its peers are away."""
    return Node(
        recorded["name"],
        peers=dict.fromkeys(recorded["first_members"], NOWHERE),
        protocol=recorded["protocol"],
        options=recorded["options"],
        members=recorded["first_members"],
        journal=journal,
        flush=False,
        guard=Plaintext(),
        limits=Limits(linger=0.1),
    )


def handshakes(mode: str) -> tuple[Handshake, Handshake]:
    """alice, who calls, and bob, as recorded."""
    key = {"key": b"k" * 32} if mode == "SHARED_KEY" else {}
    certified = [{"certified": name} if mode == "TLS" else {} for name in ("bob", "alice")]
    alice = Handshake("alice", Mode[mode], nonce=b"\1" * 32, wanted="bob", **key, **certified[0])
    return alice, Handshake("bob", Mode[mode], nonce=b"\2" * 32, **key, **certified[1])


def frames_in(record: bytes) -> list[tuple[int, bytes]]:
    return records.frames_in(record, limit=1 << 20)


def hello_in(body: bytes) -> Any:
    return records.hello_from_json(records.read_control(body)["hello"])


def hello_out(hello: Any) -> bytes:
    return records.control(hello=records.hello_to_json(hello))


ANALYSES: dict[str, dict[str, Any]] = {
    "whole": {},
    "epochs": {"whole_events": 1, "epoch_events": 30, "timestamps": "sparse"},
}
"""The traces that were analysed on Spark, and how."""


def analyze(spark: Any, name: str, out: Path) -> dict[str, Any]:
    """Analyse a recorded trace; returns the summary."""
    from happened.spark.pipeline import analyze_path as on_spark

    summary: dict[str, Any] = on_spark(spark, HERE / "traces" / f"{name}.parquet", out, **ANALYSES[name])
    return summary


def shown_schema(schema: Any) -> dict[str, str]:
    """The columns of an Arrow schema and their types."""
    return {field.name: str(field.type) + ("" if field.nullable else " not null") for field in schema}


def shown_rows(table: Any, columns: Iterable[str] | None = None) -> list[dict[str, Any]]:
    """The rows of an Arrow table, sorted; maps as objects, floats to nine digits."""
    rows = table.select(list(columns) if columns is not None else table.column_names)
    shown = [
        {key: float(f"{value:.9g}") if isinstance(value, float) else value for key, value in row.items()}
        for row in rows.to_pylist(maps_as_pydicts="strict")
    ]
    return sorted(shown, key=lambda row: json.dumps(row, sort_keys=True))


def trace_schema() -> dict[str, str]:
    return shown_schema(trace.SCHEMA)


def read_trace(path: Path) -> Any:
    """A trace as an Arrow table."""
    return trace.read(path)


def command(arguments: list[str]) -> int:
    """Run `happened` with these arguments; returns the exit code."""
    return main(arguments)
