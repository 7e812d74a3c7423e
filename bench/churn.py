"""Compares the bytes of a message in a system of ten processes after a thousand changes of members with those
in a system without changes: python bench/churn.py [--changes 1000] [--protocols ks histories …]"""

import argparse
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests" / "net"))

from churn import Churning


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--changes", type=int, default=1000)
    parser.add_argument("--protocols", nargs="+", default=["ks", "histories", "topological", "zoned-ks"])
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    print(f"{'protocol':12} {'steady':>8} {'churned':>8} {'ratio':>6} {'indices':>8} {'seconds':>8}")
    for protocol in options.protocols:
        steady = Churning(protocol, 10, options.seed)
        steady.talk(500)
        started = time.perf_counter()
        system = Churning(protocol, 10, options.seed)
        for _ in range(options.changes // 2):  # one process leaves and one joins
            system.talk(4)
            system.replace()
        took = time.perf_counter() - started
        system.talk(100)
        before, after = steady.bytes_per_message(1000), system.bytes_per_message(1000)
        indices = max(len(engine.roster) for engine in system.engines.values())
        print(f"{protocol:12} {before:8.1f} {after:8.1f} {after / before:6.2f} {indices:8} {took:8.1f}")


if __name__ == "__main__":
    main()
