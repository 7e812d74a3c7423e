"""The three-phase algorithm of the textbook chapter (Fig. 2.9 and its receiver side) as printed; the repairs
of docs/papers.md by name.

propose   max(priority + 1, ts) instead of max(priority, ts)
final     the priority is raised on FINAL_TS too
order     the queue is sorted by (timestamp, sender, tag) instead of the timestamp alone
"""

import pickle
from dataclasses import dataclass, replace

from happened.core.effects import Deliver, Send
from happened.ordering.machine import Held, Multicast
from oracles.bare import BareMachine, BareMessage

REPAIRS = frozenset({"propose", "final", "order"})


class Packet(BareMessage):
    kind: str  # REVISE, PROPOSED or FINAL
    sender: int
    clock: int  # the tag
    to: frozenset[int]
    by: int
    ts: int
    payload: bytes = b""

    def size(self):
        return 1, 0


@dataclass(frozen=True)
class Entry:
    sender: int
    tag: int
    timestamp: int
    deliverable: bool = False


class PrintedThreePhase(BareMachine):
    def __init__(self, me, n, repairs=frozenset()):
        self.me, self.n, self.repairs = me, n, repairs
        self.tag = self.ts = self.priority = 0
        self.queue = []
        self.awaited = {}  # tag -> (destinations, proposals by process)

    @property
    def clock(self):
        return self.tag

    def multicast(self, to, payload):
        self.tag += 1
        self.ts += 1
        self.awaited[self.tag] = (frozenset(to), {})
        packet = Packet("REVISE", self.me, self.tag, frozenset(to), self.me, self.ts)
        return Multicast(self.tag, [Send(d, packet) for d in to])

    def receive(self, packet):
        return getattr(self, f"on_{packet.kind.lower()}")(packet)

    def on_revise(self, packet):
        step = 1 if "propose" in self.repairs else 0
        self.priority = max(self.priority + step, packet.ts)
        self.queue.append(Entry(packet.sender, packet.clock, self.priority))
        self.sort()
        answer = Packet("PROPOSED", packet.sender, packet.clock, frozenset(), self.me, self.priority)
        return [Send(packet.sender, answer)]

    def on_proposed(self, packet):
        to, proposals = self.awaited[packet.clock]
        proposals = {**proposals, packet.by: packet.ts}
        self.awaited[packet.clock] = (to, proposals)
        if proposals.keys() != to:
            return []
        final = max(proposals.values())
        self.ts = max(self.ts, final)
        return [
            Send(d, Packet("FINAL", self.me, packet.clock, frozenset(), self.me, final)) for d in sorted(to)
        ]

    def on_final(self, packet):
        if "final" in self.repairs:
            self.priority = max(self.priority, packet.ts)
        self.queue = [
            replace(entry, timestamp=packet.ts, deliverable=True)
            if (entry.sender, entry.tag) == (packet.sender, packet.clock)
            else entry
            for entry in self.queue
        ]
        self.sort()
        effects = []
        while self.queue and self.queue[0].deliverable:
            entry = self.queue.pop(0)
            effects.append(Deliver(entry.sender, entry.tag, b""))
        return effects

    def sort(self):
        if "order" in self.repairs:
            self.queue.sort(key=lambda entry: (entry.timestamp, entry.sender, entry.tag))
        else:
            self.queue.sort(key=lambda entry: entry.timestamp)

    def pending(self):
        return [
            Held(Packet("REVISE", e.sender, e.tag, frozenset(), e.sender, e.timestamp), (), 0)
            for e in self.queue
        ]

    def snapshot(self):
        return pickle.dumps((self.tag, self.ts, self.priority, self.queue, self.awaited))

    def restore(self, data):
        self.tag, self.ts, self.priority, self.queue, self.awaited = pickle.loads(data)
