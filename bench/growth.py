"""How control information grows with the number of processes, in zones of ten with 90 % local traffic.

    python bench/growth.py [--sizes 10 100 1000] [--per-process 50] [--protocols …] [--svg FILE] [--seed 1]
                           [--cuts-of-the-graph]

Prints a line for each protocol and size, and an extrapolation to a million processes. `ks` at 1,000 processes
takes most of the time, minutes; `rst` is computed by formula. docs/large-systems.md explains the numbers.
"""

import argparse
import sys
from pathlib import Path

from happened.experiments.growth import Growth, has_zones, mean_hops, measure
from happened.ordering import protocols
from happened.report.chart import Curve, Point, draw

ZONE = 10
MILLION = 1_000_000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="+", default=[10, 100, 1000])
    parser.add_argument(
        "--per-process", type=int, default=50, help="messages that each process sends, on average"
    )
    parser.add_argument("--protocols", nargs="+", default=["rst", "ks", "topological", "zoned-ks"])
    parser.add_argument("--svg", type=Path, help="draw the curves into this file")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--cuts-of-the-graph",
        action="store_true",
        help="as if links that no route uses led past all gateways, and only cuts of the whole graph counted",
    )
    options = parser.parse_args()
    rows: dict[str, list[Growth]] = {}
    print("protocol     processes  messages  entries/hop  units/hop    largest   hops  entries/message")
    for protocol in options.protocols:
        for n in options.sizes:
            row = measure(
                protocol,
                n,
                options.per_process * n,
                size=ZONE,
                seed=options.seed,
                filtering=not options.cuts_of_the_graph,
            )
            rows.setdefault(protocol, []).append(row)
            messages = f"{row.messages:,}" if row.messages else "formula"
            print(
                f"{protocol:12} {n:9,} {messages:>9} {row.per_hop:12,.1f} {row.units_per_hop:10,.1f} "
                f"{row.largest:10,} {row.hops:6.2f} {row.per_message:16,.1f}",
                flush=True,
            )
        print(f"{protocol:12} {MILLION:9,} {'':9} {extrapolated(rows[protocol][-1])}", flush=True)
    if options.svg:
        options.svg.write_text(curves(rows))
        print(f"curves in {options.svg}", file=sys.stderr)


def extrapolated(last: Growth) -> str:
    facts = protocols()[last.protocol]
    if facts.promises.entries is not None:
        return f"{facts.promises.entries(MILLION):,} entries, by formula"
    if has_zones(facts):
        hops = mean_hops(MILLION, ZONE)
        return f"{last.per_hop:,.1f} entries a hop, {hops:.2f} hops: {last.per_hop * hops:,.1f} a message"
    return f"{last.per_hop * MILLION / last.processes:,.0f} entries, in proportion"


def curves(rows: dict[str, list[Growth]]) -> str:
    lines = [
        Curve(protocol, [Point(row.processes, row.per_message, 0.0) for row in found])
        for protocol, found in rows.items()
    ]
    return draw("Mean entries per application message", "processes", lines)


if __name__ == "__main__":
    main()
