"""One replica in a process of its own, driven by a JSON plan: what the tests of state transfer kill.

Its state is a list of names of messages. It is in a file: what a message adds is written there before the
message is acknowledged, under the message's number, since one that was not acknowledged comes again. Before
it sends, it notes how long its list is: the message follows all of that. Commands come on stdin (`expel
NAME`, `join NAME ADDRESS`), reports go to stdout, a JSON object a line.
"""

import asyncio
import json
import os
import sys
from pathlib import Path
from random import Random

from happened.core.errors import LocalProtocolError
from happened.net import JSON, Limits, NatsTransport, Node, Plaintext


class Replica:
    def __init__(self, plan):
        self.plan, self.name = plan, plan["name"]
        self.path = Path(plan["directory"]) / f"{self.name}.state"
        self.asked = (Path(plan["directory"]) / f"{self.name}.asked").open("ab", buffering=0)
        self.numbers, self.state = set(), []
        for number, entries in read_lines(self.path):
            self.numbers.add(number)
            self.state += entries
        self.file = self.path.open("ab", buffering=0)
        self.file.write(b"\n")  # the life before may have been killed in the middle of a line
        self.asked.write(b"\n")
        links = {"listen": plan["listen"], "guard": Plaintext()}
        if "nats" in plan:
            links = {"transport": NatsTransport(**plan["nats"])}
        self.node = Node(
            self.name,
            peers=plan["peers"],
            members=plan["members"],
            protocol=plan["protocol"],
            journal=f"{plan['directory']}/{self.name}.journal",
            codec=JSON,
            state=lambda: self.state,
            state_from=plan["state_from"],
            limits=Limits(**plan["limits"]),
            **links,
        )

    async def run(self):
        async with self.node:
            await asyncio.gather(self.take(), self.send(), self.obey(), self.report())

    async def take(self):
        async for message in self.node:
            if message.number not in self.numbers:
                entries = message.value if message.is_state else [message.value]
                self.file.write(json.dumps([message.number, entries]).encode() + b"\n")
                self.numbers.add(message.number)
                self.state += entries
            message.ack_nowait()

    async def send(self):
        dice, node = Random(), self.node
        await node.room()
        while node.sent < self.plan["messages"]:
            name = f"{self.name}/{node.sent + 1}"
            self.asked.write(json.dumps([name, len(self.state)]).encode() + b"\n")
            await node.multicast("*", name)
            await asyncio.sleep(dice.expovariate(1 / self.plan["pace"]))

    async def obey(self):
        reader = asyncio.StreamReader()
        loop = asyncio.get_running_loop()
        await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
        while words := (await reader.readline()).decode().split():
            await self.change(*words)
        os._exit(1)  # whoever started it has gone

    async def change(self, what, name, address=""):
        """As often as it takes: after an expulsion nobody is admitted until everybody has heard."""
        while True:
            try:
                if what == "expel":
                    if name in self.node.members:
                        await self.node.expel(name)
                    told = True
                else:
                    told = await self.node.join(name, address)
            except LocalProtocolError as error:
                print(f"{what} {name}: {error}", file=sys.stderr, flush=True)
                await asyncio.sleep(0.1)
            else:
                print(json.dumps({what: [name, told]}), flush=True)
                return

    async def report(self):
        while True:
            numbers = {"sent": self.node.sent, "state": len(self.state), "begun": bool(self.numbers)}
            print(json.dumps(numbers), flush=True)
            await asyncio.sleep(0.05)


def read_lines(path):
    """The complete lines of a file; one that a kill has cut off was not written."""
    found = []
    for line in path.read_bytes().split(b"\n") if path.exists() else ():
        try:
            found.append(json.loads(line))
        except ValueError:
            continue
    return found


if __name__ == "__main__":
    asyncio.run(Replica(json.loads(sys.argv[1])).run())
