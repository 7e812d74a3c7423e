"""Is `ks` fast enough to be the default? Ratios within one run; machines are noisy.

    make bench        or        python bench/ordering.py [--quick]

throughput  the same recorded schedule (exponential sends and delays, mean 0.1 s each) fed to each machine;
            sends + deliveries per second of machine time, median of the repetitions
parking     cost of a message that no other waits for while 750 are held: watch-one parking against rescanning
bytes       encoded control information against the byte model of Jang et al. 1997 (4-byte clocks, 2-byte ids)
"""

import argparse
import gc
import heapq
import json
import platform
import random
import statistics
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

from happened.ordering import create
from happened.ordering.causal.ks import KshemkalyaniSinghal
from happened.wire import control_size
from oracles.literal_ks import LiteralKs
from rst_numpy import RstNumpy

MEAN_SECONDS = 0.1


def schedule(n, pattern, messages, seed):
    """Steps (process, destinations) for a send and (process, number of the send) for an arrival."""
    dice = random.Random(seed)
    queue, counter, steps, sends = [], 0, [], 0
    for process in range(n):
        heapq.heappush(queue, (dice.expovariate(1 / MEAN_SECONDS), counter, process, None))
        counter += 1
    while queue:
        now, _, process, number = heapq.heappop(queue)
        if number is not None:
            steps.append((process, number))
            continue
        if sends == messages:
            continue
        size = 1 if pattern == "unicast" else dice.randint(1, n - 1)
        to = tuple(sorted(dice.sample([p for p in range(n) if p != process], size)))
        steps.append((process, to))
        for d in to:
            heapq.heappush(queue, (now + dice.expovariate(1 / MEAN_SECONDS), counter, d, sends))
            counter += 1
        sends += 1
        heapq.heappush(queue, (now + dice.expovariate(1 / MEAN_SECONDS), counter, process, None))
        counter += 1
    return steps


def replay(make, n, steps):
    """Seconds spent in the machines, and how many sends and deliveries they made."""
    machines = [make(p, n) for p in range(n)]
    in_flight, sends, done = {}, 0, 0
    clock = time.perf_counter
    gc.collect()
    gc.disable()
    spent = 0.0
    for process, what in steps:
        machine = machines[process]
        if isinstance(what, tuple):
            start = clock()
            effects = machine.multicast(what, b"").effects
            spent += clock() - start
            for to, message in effects:
                in_flight[sends, to] = message
            sends += 1
            done += 1
        else:
            message = in_flight.pop((what, process))
            start = clock()
            effects = machine.receive(message)
            spent += clock() - start
            done += len(effects)
    gc.enable()
    expected = sum(len(what) + 1 for _, what in steps if isinstance(what, tuple))
    assert done == expected, f"{make}: {done} sends and deliveries, expected {expected}"
    return spent, done


def throughput(n, pattern, messages, contestants, repetitions, seed=1):
    steps = schedule(n, pattern, messages, seed)
    rates = {name: [] for name in contestants}
    for _ in range(repetitions):
        for name, make in contestants.items():
            spent, done = replay(make, n, steps)
            rates[name].append(done / spent)
    return {name: statistics.median(values) for name, values in rates.items()}


class RescanningKs(KshemkalyaniSinghal):
    """The same machine, except that it examines all held messages after each delivery."""

    def _deliver(self, message):
        effects, parking = self.take(message), self._parking
        released = True
        while released:
            released = [held for held, _ in parking if self.lacks(held) is None]
            for held in released:
                del parking.held[held.sender, held.clock]
                effects += self.take(held)
        return effects


def parking(held, make, others=2000):
    """Seconds per message that is unrelated to the `held` messages, which wait for a late one.

    Process 0 sends a message to {1, 2} whose copy to 2 is late; 1 receives it and sends many messages to 2.
    While 2 holds all of these, 3 keeps sending to 2.
    """
    first, second, third, listener = *(create("ks", p, 4) for p in (0, 1, 3)), make(2, 4)
    (to_second, late) = (message for _, message in first.multicast((1, 2), b"").effects)
    second.receive(to_second)
    early = [message for _ in range(held) for _, message in second.multicast((2,), b"").effects]
    unrelated = [message for _ in range(others) for _, message in third.multicast((2,), b"").effects]
    for message in early:
        listener.receive(message)
    assert len(listener.pending()) == held
    start = time.perf_counter()
    delivered = sum(len(listener.receive(message)) for message in unrelated)
    spent = time.perf_counter() - start
    assert delivered == others
    assert len(listener.receive(late)) == held + 1
    return spent / others


def bytes_per_message(n, pattern, messages, seed=1):
    """Mean encoded and model bytes of control information per transmission, in the steady second half."""
    machines = [create("ks", p, n) for p in range(n)]
    in_flight, sends, encoded, model, counted = {}, 0, 0, 0, 0
    for process, what in schedule(n, pattern, messages, seed):
        if isinstance(what, tuple):
            for to, message in machines[process].multicast(what, b"").effects:
                in_flight[sends, to] = message
                if sends > messages // 2:
                    encoded += control_size(message)
                    entries, units = message.size()
                    model += 6 * entries + 2 * units
                    counted += 1
            sends += 1
        else:
            machines[process].receive(in_flight.pop((what, process)))
    return encoded / counted, model / counted


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="a tenth of the messages, one repetition")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    scale, repetitions = (0.1, 1) if arguments.quick else (1, 5)

    def ks(me, n):
        return create("ks", me, n)

    result = {"python": platform.python_version(), "throughput": [], "bytes": []}
    for pattern in ("multicast", "unicast"):
        for n in (10, 20, 30, 40, 50):
            messages = int(2000 * scale * (1 if pattern == "multicast" else 5))
            rates = throughput(n, pattern, messages, {"ks": ks, "rst": RstNumpy}, repetitions)
            row = {"pattern": pattern, "n": n, **rates, "ks/rst": rates["ks"] / rates["rst"]}
            result["throughput"].append(row)
    rates = throughput(50, "multicast", int(300 * scale) + 30, {"ks": ks, "literal": LiteralKs}, 1)
    result["literal"] = {**rates, "ks/literal": rates["ks"] / rates["literal"]}
    watch, rescan = parking(750, KshemkalyaniSinghal), parking(750, RescanningKs)
    result["parking"] = {"held": 750, "watch-one": watch, "rescanning": rescan, "ratio": rescan / watch}
    for pattern in ("unicast", "multicast"):
        for n in (10, 30, 50):
            encoded, model = bytes_per_message(n, pattern, int(4000 * max(scale, 0.25)))
            result["bytes"].append(
                {"pattern": pattern, "n": n, "encoded": encoded, "model": model, "ratio": encoded / model}
            )
    if arguments.json:
        print(json.dumps(result, indent=2))
    else:
        show(result)


def show(result):
    print("sends + deliveries per second of machine time, same schedule")
    for row in result["throughput"]:
        print(
            f"  {row['pattern']:9} n={row['n']:2}  ks {row['ks']:9,.0f}  rst(numpy) {row['rst']:9,.0f}  "
            f"ks/rst {row['ks/rst']:.2f}"
        )
    row = result["literal"]
    rates = f"ks {row['ks']:9,.0f}  literal {row['literal']:9,.0f}  ks/literal {row['ks/literal']:.0f}"
    print(f"  multicast n=50  {rates}")
    row = result["parking"]
    print(
        f"{row['held']} held: watch-one {row['watch-one'] * 1e6:.1f} µs a message, "
        f"rescanning {row['rescanning'] * 1e6:.1f} µs, ratio {row['ratio']:.0f}"
    )
    print("control bytes per transmission, encoded against the model of Jang et al. (1997)")
    for row in result["bytes"]:
        sizes = f"{row['encoded']:7.1f} of {row['model']:7.1f}  {row['ratio']:.0%}"
        print(f"  {row['pattern']:9} n={row['n']:2}  {sizes}")


if __name__ == "__main__":
    main()
