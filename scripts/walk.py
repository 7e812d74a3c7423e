"""Count the Python calls, and the files, of one message's walk from `multicast` to the peer's application.

    python scripts/walk.py [--calls]

Two nodes run on loopback, with a journal and a trace and no other optional parts. A few messages are sent
before, so that connections and caches exist. The count includes calls of functions of `happened` on every
thread, comprehensions, and generators that are resumed.
"""

import argparse
import asyncio
import collections
import sys
import tempfile
import threading
from pathlib import Path

import happened
from happened.net import Node, Plaintext

ROOT = str(Path(happened.__file__).parent)
WARM_UP = 20


class Counter:
    """Counts calls by file and function while it is on."""

    def __init__(self) -> None:
        self.calls: collections.Counter[tuple[str, str]] = collections.Counter()
        self.order: list[tuple[str, str]] = []
        self.is_on = False

    def __call__(self, frame, event, argument) -> None:
        if self.is_on and event == "call" and frame.f_code.co_filename.startswith(ROOT):
            key = (frame.f_code.co_filename[len(ROOT) + 1 :], frame.f_code.co_qualname)
            self.calls[key] += 1
            self.order.append(key)


def node(name: str, peers: dict[str, str], directory: Path) -> Node:
    return Node(
        name,
        peers=peers,
        listen=peers[name],
        guard=Plaintext(),
        journal=directory / f"{name}.journal",
        trace=directory / "trace",
    )


async def walk(counter: Counter, directory: Path) -> None:
    peers = {"alice": "127.0.0.1:17601", "bob": "127.0.0.1:17602"}
    async with node("alice", peers, directory) as alice, node("bob", peers, directory) as bob:
        for _ in range(WARM_UP):
            await alice.multicast(["bob"], b"hello")
            await (await anext(bob)).ack()
        await asyncio.sleep(0.2)

        async def take():
            message = await anext(bob)
            counter.is_on = False
            return message

        taking = asyncio.ensure_future(take())
        await asyncio.sleep(0)
        counter.is_on = True
        sending = asyncio.ensure_future(alice.multicast(["bob"], b"hello"))
        message = await taking
        await sending
        assert message.payload == b"hello"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--calls", action="store_true", help="print every call, in order")
    arguments = parser.parse_args()
    counter = Counter()
    threading.setprofile(counter)
    sys.setprofile(counter)
    with tempfile.TemporaryDirectory() as directory:
        asyncio.run(walk(counter, Path(directory)))
    sys.setprofile(None)
    if arguments.calls:
        for file, name in counter.order:
            print(f"{file:40} {name}")
    files = {file for file, _ in counter.calls}
    print(f"{sum(counter.calls.values())} calls over {len(files)} files")


if __name__ == "__main__":
    main()
