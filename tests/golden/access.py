"""How the golden set is read, and what is asked of the package about it."""

import json
from pathlib import Path
from typing import Any

from happened import ordering, tracking, wire
from happened.core.effects import Send
from happened.core.places import restored as place_from
from happened.net import Limits, Node, Plaintext
from happened.net.handshake import Handshake, Mode

HERE = Path(__file__).parent
NOWHERE = "127.0.0.1:9"
"""The address of peers that are never reached."""


def load(name: str) -> Any:
    return json.loads((HERE / name).read_text(encoding="utf-8"))


def save(name: str, document: dict[str, Any]) -> None:
    """Write JSON with one line for each member of each member."""
    members = []
    for key, value in document.items():
        lines = [f"  {json.dumps(inner)}: {json.dumps(each)}" for inner, each in value.items()]
        members.append(f" {json.dumps(key)}: {{\n" + ",\n".join(lines) + "\n }")
    (HERE / name).write_text("{\n" + ",\n".join(members) + "\n}\n", encoding="utf-8")


def machine(recorded: dict[str, Any]) -> Any:
    """The machine of a story as it began; a place is given as the nested lists it consists of."""
    options = {
        key: place_from(tuples(value)) if key == "place" else value
        for key, value in recorded["options"].items()
    }
    return ordering.create(recorded["protocol"], recorded["me"], recorded["n"], **options)


def tuples(value: Any) -> Any:
    """Lists as tuples, at every depth."""
    return tuple(map(tuples, value)) if isinstance(value, list) else value


def perform(machine: Any, step: list[Any]) -> list[list[Any]]:
    """Give a recorded input to a machine; returns its effects."""
    match step:
        case ["receive", frame]:
            effects = machine.receive(wire.decode(bytes.fromhex(frame))[0])
        case ["multicast", to, payload, more]:
            effects = machine.multicast(to, bytes.fromhex(payload), **more).effects
        case ["follow", token]:
            effects = machine.follow(tuples(token))
        case [other, process]:
            effects = getattr(machine, other)(process)
    return shown(effects or ())


def shown(effects: Any) -> list[list[Any]]:
    return [
        ["send", effect.to, wire.encode(effect.message).hex()]
        if isinstance(effect, Send)
        else ["deliver", effect.sender, effect.clock, effect.payload.hex()]
        for effect in effects
    ]


def tracker(recorded: dict[str, Any]) -> Any:
    return tracking.create(recorded["protocol"], recorded["me"], recorded["n"])


def track(machine: Any, step: list[Any]) -> Any:
    """Give a recorded input to a tracker; returns what it tells."""
    match step:
        case ["relevant"]:
            return shown_stamp(machine.relevant())
        case ["send", to]:
            piggyback = machine.on_send(to)
            return [piggyback.encode().hex(), piggyback.forced and shown_stamp(piggyback.forced)]
        case ["receive", sender, carried]:
            machine.on_receive(sender, machine.decode(bytes.fromhex(carried)))
    return None


def shown_stamp(stamp: Any) -> dict[str, Any]:
    vector, predecessors = stamp.vector(), stamp.predecessors()
    told = {
        "event": [stamp.process, stamp.seq],
        "vector": vector and list(vector),
        "dependencies": stamp.dependencies and list(stamp.dependencies),
        "predecessors": None if predecessors is None else sorted(map(list, predecessors)),
        "scalar": stamp.scalar,
        "null": stamp.null or None,
    }
    return {key: value for key, value in told.items() if value is not None}


def node(recorded: dict[str, Any], journal: Path, **more: Any) -> Node:
    """A node as it was when its journal was recorded; its peers are away."""
    return Node(
        recorded["name"],
        peers=dict.fromkeys(recorded["members"], NOWHERE),
        protocol=recorded["protocol"],
        members=recorded["members"],
        journal=journal,
        flush=False,
        limits=Limits(linger=0.1),
        **(more or {"guard": Plaintext()}),
    )


def shown_node(node: Any) -> dict[str, Any]:
    """What a node says of itself, and what its links hold."""
    links = node.stats()["peers"]
    return {
        "members": list(node.members),
        "sent": node.sent,
        "delivered": node.delivered,
        "pending": [[p.message, list(p.waits_for), p.since] for p in node.pending()],
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


def handshakes(mode: str) -> tuple[Handshake, Handshake]:
    """alice, who calls, and bob."""
    key = {"key": b"k" * 32} if mode == "SHARED_KEY" else {}
    certified = [{"certified": name} if mode == "TLS" else {} for name in ("bob", "alice")]
    alice = Handshake("alice", Mode[mode], nonce=b"\1" * 32, wanted="bob", **key, **certified[0])
    return alice, Handshake("bob", Mode[mode], nonce=b"\2" * 32, **key, **certified[1])


ANALYSES: dict[str, dict[str, Any]] = {
    "whole": {},
    "epochs": {"whole_events": 1, "epoch_events": 15, "timestamps": "sparse"},
}
"""The traces that were analysed on Spark, and how."""


def analyze(spark: Any, name: str, out: Path) -> dict[str, Any]:
    """Analyse a recorded trace; returns the summary."""
    from happened.spark.pipeline import analyze_path as on_spark

    summary: dict[str, Any] = on_spark(spark, HERE / f"{name}.parquet", out, **ANALYSES[name])
    return summary


def shown_schema(schema: Any) -> dict[str, str]:
    """The columns of an Arrow schema and their types."""
    return {field.name: str(field.type) + ("" if field.nullable else " not null") for field in schema}


def shown_rows(table: Any) -> list[dict[str, Any]]:
    """The rows of an Arrow table, sorted; maps as objects, floats to nine digits."""
    shown = [
        {key: float(f"{value:.9g}") if isinstance(value, float) else value for key, value in row.items()}
        for row in table.to_pylist(maps_as_pydicts="strict")
    ]
    return sorted(shown, key=lambda row: json.dumps(row, sort_keys=True))
