"""Random walks of routed systems, judged at both levels by plain sets of events.

`History` is kept twice: of application messages, and of hop messages. Neither looks at what is carried.
"""

from happened import wire
from happened.core.effects import Send
from happened.ordering.causal.topological import Topological
from oracles.history import History
from oracles.succession import admit, retire, succeed


class Observed(Topological):
    """Tells which hop messages it delivered and sent, in order."""

    def __init__(self, *arguments, **options):
        self.hop_events = []
        super().__init__(*arguments, **options)

    def take(self, hop):
        self.hop_events.append(("deliver", hop.message))
        return super().take(hop)

    def _pass_on(self, *arguments, **options):
        effects = super()._pass_on(*arguments, **options)
        self.hop_events += [("send", effect.message) for effect in effects[:1]]
        return effects


class Overtaken(AssertionError):
    """A message was delivered before one that is causally earlier; `level` is "application" or "hop"."""

    def __init__(self, level, process, message, others):
        super().__init__(f"{level} message {message} overtakes {sorted(others)} at {process}")
        self.level = level


class Walk:
    """Machines, the packets between them, and what they did."""

    def __init__(self, machines):
        self.machines = list(machines)
        self.in_flight = []  # (source, destination, message)
        self.application, self.hops = History(), History()
        self.carried = []

    def multicast(self, p, to, payload=b""):
        clock, effects = self.machines[p].multicast(to, payload)
        self.application.send(p, (p, clock), to)
        self.perform(p, effects)

    def arrive(self, i, *, duplicate=False):
        _, d, message = self.in_flight[i] if duplicate else self.in_flight.pop(i)
        self.perform(d, self.machines[d].receive(message))

    def perform(self, p, effects):
        for kind, message in self.machines[p].hop_events:
            name = (message.relay, message.hop)
            if kind == "send":
                self.hops.send(p, name, unpacked(message.address))
                self.carried.append(len(message.entries))
                continue
            if others := self.hops.overtaken_by(p, name):
                raise Overtaken("hop", p, name, others)
            self.hops.deliver(p, name)
        self.machines[p].hop_events.clear()
        for effect in effects:
            if isinstance(effect, Send):
                assert effect.message.address >> effect.to & 1
                message, _ = wire.decode(wire.encode(effect.message))
                assert message == effect.message
                self.in_flight.append((p, effect.to, message))
            else:
                self.deliver(p, (effect.sender, effect.clock))

    def deliver(self, p, name):
        assert p in self.application.dests[name]
        assert name not in self.application.order.get(p, []), f"{name} twice at {p}"
        if others := self.application.overtaken_by(p, name):
            raise Overtaken("application", p, name, others)
        self.application.deliver(p, name)

    def drain(self, dice):
        while self.in_flight:
            self.arrive(dice.randrange(len(self.in_flight)))

    def finish(self, dice):
        """Everything arrives; then nothing is missing and nothing is held."""
        self.drain(dice)
        assert not self.application.undelivered()
        assert not any(machine.pending() for machine in self.machines)


class ChangingWalk(Walk):
    """Processes join, leave and fail on the way. `places(n)` are the new ones, of the n there have been."""

    def __init__(self, n, places, **options):
        self.places, self.gone, self.options = places, set(), options
        self.unplaced = None
        super().__init__(Observed(p, n, place=place, **options) for p, place in enumerate(places(n)))

    def living(self):
        return {p: machine for p, machine in enumerate(self.machines) if p not in self.gone}

    def after(self):
        return {p: place for p, place in enumerate(self.places(len(self.machines))) if p not in self.gone}

    def stroll(self, dice, steps):
        for _ in range(steps):
            if not self.in_flight or dice.random() < 0.45:
                members = list(self.living())
                to = dice.sample(members, dice.randint(1, min(3, len(members))))
                self.multicast(dice.choice(members), to)
            else:
                self.arrive(dice.randrange(len(self.in_flight)), duplicate=dice.random() < 0.05)

    def flush(self, dice, wanted):
        """All that goes from s to d where wanted(s, d) arrives, and what comes of it."""
        while found := [i for i, (s, d, _) in enumerate(self.in_flight) if wanted(s, d)]:
            self.arrive(dice.choice(found))

    def perform(self, p, effects):
        super().perform(p, effects)
        self.in_flight = [packet for packet in self.in_flight if packet[1] not in self.gone]

    def kill(self, p):
        self.gone.add(p)
        self.in_flight = [packet for packet in self.in_flight if packet[1] != p]

    def newcomer(self):
        """A process that has no place yet: it is to `join`, or to succeed somebody."""
        n = len(self.machines)
        self.unplaced = Observed(n, n + 1, **self.options)
        self.machines.append(self.unplaced)
        return self.unplaced

    def join(self):
        machines = self.living()
        machines.pop(self.unplaced.me)
        admit(machines, self.after(), self.unplaced)
        self.unplaced = None

    def leave(self, p):
        self.kill(p)
        retire(self.living(), p, self.after())

    def succeed(self, dead, successor, **source):
        """Of one that was killed, or whose machine its journal has brought up to date."""
        self.kill(dead)
        machines = self.living()
        if successor is self.unplaced:
            machines.pop(successor.me)
            self.unplaced = None
        self.perform(successor.me, succeed(machines, dead, self.after(), successor, **source))

    def finish(self, dice):
        self.drain(dice)
        lost = [(name, d) for name, d in self.application.undelivered() if d not in self.gone]
        assert not lost, lost
        assert not any(machine.pending() for machine in self.living().values())


def unpacked(bits):
    return {p for p in range(bits.bit_length()) if bits >> p & 1}


def wander(walk, dice, sends, *, members=None, busy=0.6):
    """Random sends and arrivals, biased towards slow packets and quick replies."""
    members = members or range(len(walk.machines))
    slow = set()
    while sends or walk.in_flight:
        if sends and (not walk.in_flight or dice.random() > busy):
            sends -= 1
            p = dice.choice(members)
            to = dice.sample(members, dice.randint(1, min(3, len(members))))
            before = len(walk.in_flight)
            walk.multicast(p, to)
            slow.update(id(m) for _, _, m in walk.in_flight[before:] if dice.random() < 0.3)
        else:
            i = dice.randrange(len(walk.in_flight))
            if id(walk.in_flight[i][2]) in slow and dice.random() < 0.8:
                i = dice.randrange(len(walk.in_flight))
            walk.arrive(i, duplicate=dice.random() < 0.05)
    walk.finish(dice)
