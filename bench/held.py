"""Do held messages slow down others? Measures messages that depend on no held one, while more are held.

    python bench/held.py [--json]

For each protocol: one message is late at its receiver, `held` others that follow it have arrived, and then
unrelated messages keep coming. Prints the microseconds per unrelated message, and per held message delivered
when the late one arrives. Both should stay flat; if every held message were examined again, they would grow.
"""

import argparse
import json
import platform
import statistics
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

from happened.core.effects import Deliver, Send
from happened.ordering import create, protocols

HELD = (10, 100, 1000)
OTHERS = 300
LISTENER = 2
# Where sends are serialized, every message is related to the late one.
CHAINED = ("serialized-broadcast", "serialized-multicast")
NOTHING_TO_MEASURE = {
    "acknowledged": "its senders wait, its receivers do not",
    "agreed": "its receivers wait for an agreement, not for messages",
    "causal-total": "its receivers wait for an agreement, not for messages",
    "cbcast": "a message brings along what is missing",
    "flooding": "links keep the order, receivers hold nothing",
    "phased": "its receivers wait for phases, not for messages",
    "sequencer": "the order is made by one process",
}


def everybody_but(sender):
    return [p for p in range(4) if p != sender]


def packets(effects):
    return {effect.to: effect.message for effect in effects if isinstance(effect, Send)}


def measure(name, held):
    """Seconds per unrelated message while `held` are held, and per message released with the late one."""
    machines = [create(name, p, 4) for p in range(4)]
    broadcast = "multicast" not in protocols()[name].assumes.casts or name == "bss-groups"
    first = packets(machines[0].multicast(everybody_but(0) if broadcast else [1, LISTENER], b"").effects)
    machines[1].receive(first[1])
    early = []
    for _ in range(held):
        sent = packets(machines[1].multicast(everybody_but(1) if broadcast else [LISTENER], b"").effects)
        early.append(sent[LISTENER])
    unrelated = []
    if name not in CHAINED:
        for _ in range(OTHERS):
            sent = packets(machines[3].multicast(everybody_but(3) if broadcast else [LISTENER], b"").effects)
            unrelated.append(sent[LISTENER])
    listener = machines[LISTENER]
    for message in early:
        listener.receive(message)
    assert len(listener.pending()) == held
    start = time.perf_counter()
    delivered = sum(len(listener.receive(message)) for message in unrelated)
    passing = (time.perf_counter() - start) / OTHERS
    assert delivered == len(unrelated)
    start = time.perf_counter()
    released = [effect for effect in listener.receive(first[LISTENER]) if isinstance(effect, Deliver)]
    release = (time.perf_counter() - start) / len(released)
    assert len(released) == held + 1
    return passing, release


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--repetitions", type=int, default=5)
    arguments = parser.parse_args()
    rows = []
    for name in protocols():
        if name in NOTHING_TO_MEASURE:
            print(f"{name}: not measured, {NOTHING_TO_MEASURE[name]}", file=sys.stderr)
            continue
        for held in HELD:
            runs = [measure(name, held) for _ in range(arguments.repetitions)]
            passing, release = (statistics.median(column) * 1e6 for column in zip(*runs, strict=True))
            rows.append({"protocol": name, "held": held, "passing": passing, "release": release})
    if arguments.json:
        print(json.dumps({"python": platform.python_version(), "microseconds": rows}, indent=2))
        return
    print("microseconds for a message nobody waits for, and for each one released, against the number held")
    for name in dict.fromkeys(row["protocol"] for row in rows):
        cells = [row for row in rows if row["protocol"] == name]
        passing = "  ".join("     -" if name in CHAINED else f"{row['passing']:6.1f}" for row in cells)
        release = "  ".join(f"{row['release']:6.1f}" for row in cells)
        print(f"  {name:21} passing {passing}    released {release}    ({', '.join(map(str, HELD))} held)")


if __name__ == "__main__":
    main()
