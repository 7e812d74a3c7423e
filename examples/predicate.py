"""Two workers and a critical section: could both have been inside at once, and were they for certain?

    python examples/predicate.py apart         nothing is said between them
    python examples/predicate.py token         one enters after the other has left, and knows it
    python examples/predicate.py rendezvous    one leaves only after it has heard that the other is inside

Entering and leaving are relevant events. A tracker that gives immediate predecessors (`p3-reduced`) stamps
them while the workers run, and each is sent to a monitor. From that alone it builds the consistent global
states that the run may have passed through, as the events come in (Cooper & Marzullo, "Consistent detection
of global predicates", 1991):

    possibly     some way through them passes a state in which both are inside; said as soon as it is known
    definitely   every way does; said when the workers have ended
"""

import argparse
import asyncio
import json
import socket
from contextlib import AsyncExitStack
from typing import Any

from happened.net import Node, Plaintext
from happened.tracking import Stamp

WORKERS = ("alice", "bob")
MONITOR = "carol"
NAMES = (*WORKERS, MONITOR)

Cut = tuple[int, ...]
"""How many events of each worker have happened in a global state."""


class Lattice:
    """The consistent global states of the events so far; `holds` judges the workers' states in one of them.

    An event extends a state iff its immediate predecessors are in it: they stand for all that came before.
    """

    def __init__(self, start: str, holds: Any) -> None:
        self._holds = holds
        self._states = [[start] for _ in WORKERS]  # of each worker, after each of its events
        self._needs: list[list[list[tuple[int, int]]]] = [[] for _ in WORKERS]
        nothing = (0,) * len(WORKERS)
        self._reached = {nothing}
        self._avoiding = set() if self._satisfies(nothing) else {nothing}  # reached without `holds`
        self.possibly: Cut | None = nothing if self._satisfies(nothing) else None

    def add(self, stamp: Stamp, state: str) -> None:
        """An event, reported after its predecessors: the monitor's messages come in causal order."""
        assert stamp.predecessors is not None
        worker = WORKERS.index(stamp.process)
        self._needs[worker].append([(WORKERS.index(name), seq) for name, seq in stamp.predecessors])
        self._states[worker].append(state)
        fresh = list(self._reached)
        while fresh:
            cut = fresh.pop()
            for following in self._following(cut):
                avoids = cut in self._avoiding and not self._satisfies(following)
                if following not in self._reached or (avoids and following not in self._avoiding):
                    fresh.append(following)
                    self._reached.add(following)
                    if avoids:
                        self._avoiding.add(following)
                    if self.possibly is None and self._satisfies(following):
                        self.possibly = following

    @property
    def definitely(self) -> bool:
        """Whether no way leads to the last state without passing one that `holds`."""
        return tuple(len(needs) for needs in self._needs) not in self._avoiding

    @property
    def size(self) -> int:
        return len(self._reached)

    def _following(self, cut: Cut) -> list[Cut]:
        return [
            (*cut[:worker], count + 1, *cut[worker + 1 :])
            for worker, count in enumerate(cut)
            if count < len(self._needs[worker])
            and all(cut[other] >= seq for other, seq in self._needs[worker][count])
        ]

    def _satisfies(self, cut: Cut) -> bool:
        return bool(self._holds([self._states[worker][count] for worker, count in enumerate(cut)]))


class Worker:
    """A node whose every change of state is a relevant event that the monitor hears of."""

    def __init__(self, node: Node) -> None:
        self._node = node

    async def become(self, state: str) -> None:
        stamp = self._node.relevant(state)
        await self._node.multicast(MONITOR, json.dumps({"stamp": stamp.to_json(), "state": state}).encode())

    async def tell(self, other: str) -> None:
        await self._node.multicast(other, b"go on")

    async def hear(self) -> None:
        message = await anext(self._node)
        await message.ack()

    async def end(self) -> None:
        await self._node.multicast(MONITOR, b"{}")


async def alice(story: str, me: Worker) -> None:
    await me.become("inside")
    if story == "rendezvous":
        await me.tell("bob")
        await me.hear()
    await me.become("outside")
    if story == "token":
        await me.tell("bob")
    await me.end()


async def bob(story: str, me: Worker) -> None:
    if story != "apart":
        await me.hear()
    await me.become("inside")
    if story == "rendezvous":
        await me.tell("alice")
    await me.become("outside")
    await me.end()


async def monitor(node: Node) -> Lattice:
    lattice = Lattice("outside", lambda states: all(state == "inside" for state in states))
    ended, said = 0, False
    async for message in node:
        report = json.loads(message.payload)
        if report:
            stamp = Stamp.from_json(report["stamp"])
            lattice.add(stamp, report["state"])
            print(f"{stamp.process} is {report['state']:<8} {stamp}")
            if lattice.possibly is not None and not said:
                print("possibly both were inside")
                said = True
        ended += not report
        await message.ack()
        if ended == len(WORKERS):
            break
    return lattice


def free_addresses() -> dict[str, str]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in NAMES]
    addresses = [f"127.0.0.1:{each.getsockname()[1]}" for each in sockets]
    for each in sockets:
        each.close()
    return dict(zip(NAMES, addresses, strict=True))


async def main(story: str) -> None:
    peers = free_addresses()
    async with AsyncExitStack() as stack:
        nodes = {
            name: await stack.enter_async_context(
                Node(name, peers=peers, listen=peers[name], guard=Plaintext(), tracker="p3-reduced")
            )
            for name in NAMES
        }
        lattice, _, _ = await asyncio.gather(
            monitor(nodes[MONITOR]),
            alice(story, Worker(nodes["alice"])),
            bob(story, Worker(nodes["bob"])),
        )
    possibly = lattice.possibly is not None
    print(f"{lattice.size} global states: possibly {possibly}, definitely {lattice.definitely}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Detect a predicate over the relevant events of a run.")
    parser.add_argument("story", nargs="?", choices=("apart", "token", "rendezvous"), default="apart")
    asyncio.run(main(parser.parse_args().story))
