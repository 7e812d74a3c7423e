"""Kshemkalyani & Singhal (1998), §4.3, transcribed step by step: an oracle for the machine that users run.

Sets of Python, one O_M per destination, scans over everything held: nothing shared with the package but
the shapes of effects. `faults` plants one of the mistakes that docs/papers.md describes:

rcv4-misprint        the first test of RCV(4) as printed, l_{s,t'} for l_{s,t}: never true
unsafe-lookahead     §4.5: RCV(4), RCV(5) on the control information of a held message, as written
omit-duplicates      §3.5: units already sent on a channel are not sent on it again
omit-own-entries     one's own earlier messages are left out, "FIFO will keep them in order"
"""

import copy
import pickle
from dataclasses import dataclass, field

from happened.core.destinations import pack
from happened.core.effects import Deliver, Send
from happened.ordering.machine import Held, Multicast
from oracles.bare import BareMachine

Log = dict[tuple[int, int], set[int]]  # (sender, clock) -> Dests


@dataclass
class LiteralMessage:
    sender: int
    clock: int
    to: frozenset[int]
    payload: bytes
    o_m: Log
    receiver: int

    def units(self):
        return frozenset((s, t, d) for (s, t), dests in self.o_m.items() for d in dests)

    def size(self):
        return len(self.o_m), len(self.units())

    @property
    def dests(self):
        return pack(self.to)

    @property
    def via(self):
        return self.sender

    def model_bytes(self):
        entries, units = self.size()
        return 6 * entries + 2 * units


@dataclass
class LiteralKs(BareMachine):
    _me: int
    _n: int
    faults: frozenset[str] = frozenset()
    clock: int = 0
    events: int = 0
    sr: list[int] = field(default_factory=list)
    log: Log = field(default_factory=dict)
    held: list[tuple[LiteralMessage, int]] = field(default_factory=list)
    seen: set[tuple[int, int]] = field(default_factory=set)
    sent: dict[int, set] = field(default_factory=dict)

    def __post_init__(self):
        self.sr = [0] * self._n

    @property
    def me(self):
        return self._me

    @property
    def n(self):
        return self._n

    def tick(self):
        self.clock += 1
        self.events += 1
        return self.clock

    def multicast(self, to, payload):
        dests = frozenset(to)
        self.tick()  # SND(1)
        effects = []
        for d in sorted(dests):  # SND(2)
            o_m = copy.deepcopy(self.log)
            for key in o_m:
                if d not in o_m[key]:
                    o_m[key] = o_m[key] - dests
                else:
                    o_m[key] = (o_m[key] - dests) | {d}
            if "omit-own-entries" in self.faults:
                for key in o_m:
                    if key[0] == self._me:
                        o_m[key] = set()
            purge_null_entries(o_m)
            if "omit-duplicates" in self.faults:
                already = self.sent.setdefault(d, set())
                units = {(key, x) for key, xs in o_m.items() for x in xs}
                o_m = {key: {x for x in xs if (key, x) not in already} for key, xs in o_m.items()}
                already |= units
                purge_null_entries(o_m)
            effects.append(Send(d, LiteralMessage(self._me, self.clock, dests, payload, o_m, d)))
        for key in self.log:  # SND(3)
            self.log[key] = self.log[key] - dests
        self.log[self._me, self.clock] = set(dests)  # SND(4)
        purge_null_entries(self.log)  # SND(5)
        return Multicast(self.clock, effects)

    def receive(self, message):
        self.events += 1
        key = (message.sender, message.clock)
        if key in self.seen:
            return []
        self.seen.add(key)
        self.held.append((message, self.events))
        effects = []
        progress = True
        while progress:
            progress = False
            for item in list(self.held):
                if not self._waits_for(item[0]):  # RCV(1)
                    self.held.remove(item)
                    effects.append(self._deliver(item[0]))
                    progress = True
        if "unsafe-lookahead" in self.faults and any(m is message for m, _ in self.held):
            self._merge(copy.deepcopy(message.o_m))
        return effects

    def _waits_for(self, message):
        return tuple(
            key
            for key, dests in sorted(message.o_m.items())
            if self._me in dests and self.sr[key[0]] < key[1]
        )

    def _deliver(self, message):
        self.events += 1
        self.sr[message.sender] = max(self.sr[message.sender], message.clock)  # RCV(2)
        o_m = copy.deepcopy(message.o_m)
        o_m[message.sender, message.clock] = set(message.to)  # RCV(3)
        for key in o_m:
            o_m[key].discard(self._me)
        self._merge(o_m)
        return Deliver(message.sender, message.clock, message.payload)

    def _merge(self, o_m):
        marked_o, marked_l = set(), set()  # RCV(4)
        for m, t in o_m:
            for s, u in self.log:
                if s == m:
                    absent = (s, u if "rcv4-misprint" in self.faults else t) not in self.log
                    if t < u and absent:
                        marked_o.add((m, t))
                    if u < t and (m, u) not in o_m:
                        marked_l.add((s, u))
        for key in marked_o:
            del o_m[key]
        for key in marked_l:
            del self.log[key]
        for key in list(o_m):
            if key in self.log:
                self.log[key] = self.log[key] & o_m.pop(key)
        self.log.update(o_m)
        purge_null_entries(self.log)  # RCV(5)

    def pending(self):
        return [Held(m, self._waits_for(m), since) for m, since in self.held]

    def log_units(self):
        return frozenset((s, t, d) for (s, t), dests in self.log.items() for d in dests)

    def snapshot(self):
        log = sorted((key, sorted(dests)) for key, dests in self.log.items())
        held = sorted((m.sender, m.clock) for m, _ in self.held)
        state = (self.clock, self.sr, log, held, sorted(self.seen), sorted(self.sent.items()))
        return repr((self._me, state)).encode() + b"\0" + pickle.dumps(self)

    def restore(self, data):
        self.__dict__.update(pickle.loads(data.split(b"\0", 1)[1]).__dict__)


def purge_null_entries(log):
    newest = {}
    for s, t in log:
        newest[s] = max(newest.get(s, 0), t)
    for s, t in [key for key, dests in log.items() if not dests and key[1] < newest[key[0]]]:
        del log[s, t]
