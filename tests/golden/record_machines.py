"""Record what ordering machines and trackers of version 0.1.0 put into frames and snapshots.

Each story is one random run of a small system. Of it are kept: frames of every kind of message; and of the
machine that held the most at once, its snapshot at that moment, every input it got afterwards with the
effects it answered, and its snapshot at the end.
"""

import random

from contract.drive import overlapping
from golden import access
from golden.access import HERE
from happened import ordering, tracking, wire
from happened.core.errors import LocalProtocolError
from happened.wire import CODECS
from oracles.places import hop_places, ring
from oracles.worlds import WORLDS
from oracles.zones import WORLDS as ZONES
from oracles.zones import places as zone_places

SENDS = 16
FRAMES = 9
"""Kept of one story, the fullest of each kind first."""


def nested(value):
    return [nested(item) for item in value] if isinstance(value, tuple) else value


def each_place(places):
    return [{"place": nested(place)} for place in places]


WIDE = list(range(0, 70, 9))
CHOSEN = {
    "ks-hardware-multicast": ("ks", 4, {"hardware_multicast": True}),
    "ks-lookahead": ("ks", 4, {"lookahead": True}),
    "ks-wide": ("ks", 70, {}),
    "ks-grown-wide": ("ks", 63, {}),
    "bss-groups-overlapping": ("bss-groups", 4, {"groups": [sorted(g) for g in overlapping(4)]}),
    "flooding-ring": ("flooding", 4, {"overlay": [[0, 1], [1, 2], [2, 3], [0, 3]]}),
    "phased-overlapping": ("phased", 4, {"groups": [[0, 1, 2], [1, 2, 3], [0, 3]]}),
    "sequencer-other-coordinator": ("sequencer", 4, {"coordinator": 2}),
    "histories-extended": ("histories", 4, {"extended": True}),
    "histories-all-entries": ("histories", 4, {"timestamp_redundancy": False}),
    "histories-separators": ("histories", 5, each_place(hop_places(ring(5)))),
    "topological-extended": ("topological", 4, {"extended": True}),
    "topological-line": ("topological", 4, each_place(WORLDS["line"].places())),
    "topological-two-gateways": ("topological", 6, each_place(WORLDS["two gateways"].places())),
    "zoned-ks-line": ("zoned-ks", 4, each_place(zone_places(ZONES["a line of three zones"]))),
    "zoned-ks-wide-zones": ("zoned-ks", 6, each_place(zone_places(ZONES["a line of three wide zones"]))),
    "labelled": ("labelled", 4, {}),
    "priorities": ("priorities", 4, {}),
}


def systems():
    """(story, protocol, n, options of each process or of all, whether processes join and leave)."""
    for name in ordering.protocols():
        yield name, name, 4, {}, False
        try:
            ordering.create(name, 0, 2).join(2)
        except LocalProtocolError:
            continue
        yield f"{name}-grown", name, 4, {}, True
    for story, (name, n, options) in CHOSEN.items():
        yield story, name, n, options, story == "ks-grown-wide"


class Story:
    """One run: machines, packets, and every input of every machine with its effects."""

    def __init__(self, protocol, n, options, dice):
        self.protocol, self.n, self.dice = protocol, n, dice
        self.options = options if isinstance(options, list) else [options] * n
        self.machines = [access.machine(protocol, p, n, self.options[p]) for p in range(n)]
        facts = ordering.protocols().get(protocol)
        self.casts = facts.casts if facts else {"unicast", "multicast", "broadcast"}
        self.keeps_links = facts is not None and (facts.fifo_links or protocol in ("sequencer", "phased"))
        self.active = list(range(n)) if n < 60 else WIDE if n == 70 else list(range(n - 3, n))
        self.gone = set()
        self.in_flight = []  # (from, to, message)
        self.made = []
        self.inputs = [[] for _ in range(n)]  # of each machine: (step, snapshot and held before it)
        self.token = None

    def give(self, process, step):
        machine = self.machines[process]
        before = machine.snapshot(), access.shown_pending(machine)
        effects = self.watched(process, step)
        if effects is not None:
            step = step | {"effects": effects}
        self.inputs[process].append((step, *before))

    def watched(self, process, step):
        """Perform, and put what is sent in flight, as messages."""
        effects = access.perform(self.machines[process], step)
        for kind, to, *rest in effects or ():
            if kind == "send":
                message, _ = wire.decode(bytes.fromhex(rest[0]))
                self.made.append(message)
                self.in_flight.append((process, to, message))
        return effects

    def send(self, sender):
        if self.token is not None:
            self.give(sender, {"input": "follow", "token": nested(self.token)})
        step = {"input": "multicast", "to": self.destinations(sender)}
        step["payload"] = self.dice.randbytes(self.dice.randint(0, 6)).hex()
        if self.protocol == "labelled":
            step["with"] = {"label": self.dice.choice(["", "a", "ä"])}
        if self.protocol == "priorities":
            step["with"] = {"priority": self.dice.choice([0, 0, -3, 1 << 20])}
        self.give(sender, step)
        if self.protocol.startswith("serialized"):
            self.token = self.machines[sender].latest

    def destinations(self, sender):
        present = [p for p in range(len(self.machines)) if p not in self.gone]
        others = [p for p in present if p != sender]
        place = self.options[sender].get("place") if sender < self.n else None
        if self.protocol == "histories" and place:
            others = [p for p in others if place[0] >> p & 1]
        groups = self.options[0].get("groups")
        if groups:
            return self.dice.choice([group for group in groups if sender in group and len(group) > 1])
        if ("multicast" not in self.casts and "unicast" not in self.casts) or self.protocol == "bss-groups":
            return others
        reachable = [p for p in others if p in self.active]
        most = 1 if self.casts == {"unicast"} else 3
        return sorted(self.dice.sample(reachable, self.dice.randint(1, min(most, len(reachable)))))

    def arrive(self):
        sender, to, message = self.dice.choice(self.in_flight)
        if self.keeps_links:
            message = next(m for s, d, m in self.in_flight if (s, d) == (sender, to))
        at = next(i for i, (s, d, m) in enumerate(self.in_flight) if (s, d) == (sender, to) and m is message)
        del self.in_flight[at]
        self.give(to, {"input": "receive", "frame": wire.encode(message).hex()})

    def join(self):
        index = len(self.machines)
        for process in range(index):
            self.give(process, {"input": "join", "process": index})
        self.machines.append(access.machine(self.protocol, index, index + 1, {}))
        for process in self.gone:
            self.machines[index].leave(process)
        self.inputs.append([])
        self.active.append(index)

    def leave(self, process):
        self.active.remove(process)
        self.gone.add(process)
        for other in range(len(self.machines)):
            if other != process:
                self.give(other, {"input": "leave", "process": process})

    def hand_over(self):
        for machine in self.machines:
            if machine.coordinator == machine.me:
                self.give(machine.me, {"input": "hand_over", "to": (machine.me + 1) % self.n})
                return

    def run(self, grows):
        for number in range(SENDS):
            self.send(self.dice.choice(self.active))
            while self.in_flight and self.dice.random() < 0.55:
                self.arrive()
            if grows and number in (4, 7):
                self.join()
            if grows and number == 10:
                self.leave(self.active[1])
            if self.protocol == "sequencer" and number in (5, 11):
                self.hand_over()
        self.drain()
        for sender in self.active[-4:]:  # whatever was held, every machine stamps a message after it
            self.send(sender)
        self.drain()
        return self

    def drain(self):
        while self.in_flight:
            self.arrive()


def telling(name, protocol, n, options, grows):
    """The first of some random runs that keeps messages back long enough; the first of all if none does."""
    first = None
    for attempt in range(20):
        story = Story(protocol, n, options, random.Random(f"{name}/{attempt}")).run(grows)
        first = first or story
        me, at = fullest(story)
        if len(story.inputs[me][at][2]) >= 2 and len(story.inputs[me]) - at >= 5:
            return story
    return first


def fullest(story):
    """(process, place in its inputs): where a machine held the most, with deliveries still to come."""
    best, found = (-1,), (0, 0)
    for process in range(story.n):
        for at, (_, _, held) in enumerate(story.inputs[process]):
            later = [step for step, _, _ in story.inputs[process][at:]]
            tells = any(kind == "deliver" for step in later for kind, *_ in step.get("effects", ()))
            sends = sum(step["input"] == "multicast" for step in later)
            worth = min(len(held), 2), min(sends, 2), len(held), len(later)
            if tells and worth > best:
                best, found = worth, (process, at)
    return found


def kept_frames(made):
    """The fullest messages of each kind, in the order they were sent."""
    kinds = {}
    for message in made:
        kinds.setdefault(type(message).__name__, []).append(message)
    kept = []
    for messages in kinds.values():
        distinct = {wire.encode(m): m for m in messages}
        ranked = sorted(distinct.values(), key=lambda m: (-m.size()[0], -len(wire.encode(m))))
        kept += ranked[: max(3, FRAMES // len(kinds))]
    return [m for m in {wire.encode(m): m for m in made}.values() if m in kept]


def record_ordering():
    seen = set()
    for name, protocol, n, options, grows in systems():
        story = telling(name, protocol, n, options, grows)
        me, at = fullest(story)
        steps = [step for step, _, _ in story.inputs[me][at:]]
        _, snapshot, held = story.inputs[me][at]
        seen |= {type(message) for message in story.made}
        frames = [
            {"frame": wire.encode(m).hex(), "message": type(m).__name__} | access.shown_message(m)
            for m in kept_frames(story.made)
        ]
        document = {
            "protocol": protocol,
            "n": n,
            "me": me,
            "options": story.options[me],
            "frames": frames,
            "snapshot": snapshot.decode("ascii"),
            "pending": held,
            "steps": steps,
            "snapshot_after": story.machines[me].snapshot().decode("ascii"),
            "pending_after": access.shown_pending(story.machines[me]),
        }
        access.save(HERE / "ordering" / f"{name}.json", document)
        print(f"{name:32}{len(held):4} held {len(frames):4} frames {len(steps):4} steps")
    kinds = {kind for codec in CODECS.values() for kind in codec.MESSAGES}
    assert seen == kinds, f"never sent: {kinds - seen}"


def record_tracking():
    for name in (*tracking.protocols(), "p2:2"):
        dice, n = random.Random(name), 4
        machines = [access.tracker(name, p, n) for p in range(n)]
        fifo = tracking.protocols()[name.partition(":")[0]].fifo_links
        inputs, in_flight = [[] for _ in range(n)], []

        def give(process, step, inputs=inputs, machines=machines):
            before = machines[process].snapshot()
            told = access.track(machines[process], step)
            inputs[process].append((step | {"tells": told}, before))
            return told

        for _ in range(120):
            chance, p = dice.random(), dice.randrange(n)
            if chance < 0.25:
                give(p, {"input": "relevant"})
            elif chance < 0.6 or not in_flight:
                if name == "direct":  # it sends only what an event of its own has told
                    give(p, {"input": "relevant"})
                to = dice.choice([q for q in range(n) if q != p])
                carried, _ = give(p, {"input": "send", "to": to})
                in_flight.append((p, to, carried))
            else:
                packet = dice.choice(in_flight)
                if fifo:
                    packet = next(other for other in in_flight if other[:2] == packet[:2])
                in_flight.remove(packet)
                give(packet[1], {"input": "receive", "sender": packet[0], "carried": packet[2]})
        me = max(range(n), key=lambda p: len(inputs[p]))
        at = len(inputs[me]) // 2  # half of its inputs come after the snapshot
        document = {
            "protocol": name,
            "n": n,
            "me": me,
            "snapshot": inputs[me][at][1].decode("ascii"),
            "steps": [step for step, _ in inputs[me][at:]],
            "snapshot_after": machines[me].snapshot().decode("ascii"),
        }
        access.save(HERE / "tracking" / f"{name.replace(':', '-')}.json", document)


def record():
    record_ordering()
    record_tracking()
