"""Is tracking cheap enough to leave on? Send + receive of each tracker, against a numpy vector clock.

    python bench/tracking.py [--quick] [--json] [--processes 50] [--protocols p1,p3-reduced]

The same recorded computation (uniform unicasts, one relevant event per ten communication events, exponential
delays) is replayed through every tracker; the time of an idle tracker for the same steps is subtracted. For
each stretch of 500 steps the fastest repetition counts; ratios are to numpy's vector clock in the same run.
"""

import argparse
import gc
import heapq
import json
import platform
import random
import time
from functools import partial

from happened.tracking import create, protocols
from vector_numpy import NumpyVector

MEAN_SECONDS = 0.1
EVENT, SEND, RECEIVE = range(3)
CHUNK = 500  # steps timed together: short enough to find the machine quiet


def computation(n, messages, seed, *, fifo, relevant=0.1):
    """Steps (what, process, peer, message number), the receipts in the order of their arrival."""
    dice = random.Random(seed)
    steps, flying, now, latest = [], [], 0.0, {}
    for number in range(messages):
        now += dice.expovariate(n / MEAN_SECONDS)
        while flying and flying[0][0] <= now:
            _, arrived, sender, to = heapq.heappop(flying)
            steps.append((RECEIVE, to, sender, arrived))
            if dice.random() < relevant:
                steps.append((EVENT, to, None, None))
        sender, to = dice.sample(range(n), 2)
        steps.append((SEND, sender, to, number))
        if dice.random() < relevant:
            steps.append((EVENT, sender, None, None))
        arrival = now + dice.expovariate(1 / MEAN_SECONDS)
        if fifo:
            arrival = latest[sender, to] = max(arrival, latest.get((sender, to), 0.0))
        heapq.heappush(flying, (arrival, number, sender, to))
    while flying:
        _, arrived, sender, to = heapq.heappop(flying)
        steps.append((RECEIVE, to, sender, arrived))
    return steps


class Idle:
    """A tracker that does nothing, to measure the cost of the replay itself."""

    def __init__(self, me, n):
        pass

    def relevant(self):
        pass

    def on_send(self, to):
        pass

    def on_receive(self, sender, piggyback):
        pass


def replay(make, n, steps):
    """Seconds for the sends and receipts of each chunk of the computation; relevant events are not timed."""
    trackers = [make(me, n) for me in range(n)]
    carried, clock, chunks = {}, time.perf_counter, []
    gc.collect()
    gc.disable()
    for first in range(0, len(steps), CHUNK):
        spent, start = 0.0, clock()
        for what, process, peer, number in steps[first : first + CHUNK]:
            if what == SEND:
                carried[number] = trackers[process].on_send(peer)
            elif what == RECEIVE:
                trackers[process].on_receive(peer, carried.pop(number))
            else:
                spent += clock() - start
                trackers[process].relevant()
                start = clock()
        chunks.append(spent + clock() - start)
    gc.enable()
    return chunks


def measure(contestants, n, messages, repetitions):
    """Microseconds per send + receive of each contestant (factory, fifo), the idle replay taken off.

    Of each chunk the fastest repetition counts: other processes of the machine can only slow it down.
    """
    steps = {fifo: computation(n, messages, 1, fifo=fifo) for fifo in (False, True)}
    contestants = {"idle": (Idle, False), **contestants}
    fastest = {}
    for _ in range(repetitions):
        for name, (make, fifo) in contestants.items():
            chunks = replay(make, n, steps[fifo])
            fastest[name] = list(map(min, chunks, fastest.get(name, chunks)))
    each = {name: sum(chunks) / messages * 1e6 for name, chunks in fastest.items()}
    idle = each.pop("idle")
    return {name: spent - idle for name, spent in each.items()}


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    # direct refuses to send where this computation asks it to: it has no place in this comparison
    default = ",".join(name for name in protocols() if name != "direct")
    parser.add_argument("--protocols", default=default)
    parser.add_argument("--processes", type=int, default=50)
    parser.add_argument("--messages", type=int, default=5_000)
    parser.add_argument("--repetitions", type=int, default=15)
    parser.add_argument("--quick", action="store_true", help="a tenth of the messages, two repetitions")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    messages, repetitions = arguments.messages, arguments.repetitions
    if arguments.quick:
        messages, repetitions = messages // 10, 2
    contestants = {"numpy vector": (NumpyVector, False)}
    for name in arguments.protocols.split(","):
        fifo = protocols()[name.partition(":")[0]].fifo_links
        contestants[name] = (partial(create, name), fifo)
    found = measure(contestants, arguments.processes, messages, repetitions)
    baseline = found["numpy vector"]
    rows = {name: {"µs": each, "ratio": each / baseline} for name, each in found.items()}
    if arguments.json:
        print(json.dumps({"python": platform.python_version(), "n": arguments.processes, **rows}, indent=2))
        return
    print(f"send + receive, n = {arguments.processes}, {messages:,} messages, fastest of {repetitions}")
    for name, row in rows.items():
        print(f"  {name:24} {row['µs']:7.2f} µs   {row['ratio']:5.2f} × numpy vector")


if __name__ == "__main__":
    main()
