"""A hand-driven network of machines, judged by `History` at every event."""

from happened.core.effects import Deliver, Send
from oracles.history import History


class Network:
    """Perform effects as told; check safety, and where asked optimality, at each one."""

    def __init__(self, machines, *, optimal=True):
        self.machines = list(machines)
        self.optimal = optimal
        self.history = History()
        self.in_flight = []  # (destination, message)
        self.delivered = 0

    def multicast(self, process, to, payload=b""):
        """Send, and return the messages by destination; they stay in flight."""
        before = self.history.log(process)
        clock, effects = self.machines[process].multicast(to, payload)
        assert all(isinstance(effect, Send) for effect in effects)
        messages = {effect.to: effect.message for effect in effects}
        assert set(messages) == set(to)
        self.history.send(process, (process, clock), to)
        for d, message in messages.items():
            assert (message.sender, message.clock) == (process, clock)
            assert message.to == frozenset(to)
            if self.optimal:
                assert message.units() == self.history.edge(before, to, d), f"on the edge to {d}"
            self.in_flight.append((d, message))
        self._check_log(process)
        return messages

    def arrive(self, process, message):
        """Hand over a message (again, if it is a duplicate); returns the (sender, clock) delivered."""
        if (process, message) in self.in_flight:
            self.in_flight.remove((process, message))
        delivered = []
        for effect in self.machines[process].receive(message):
            assert isinstance(effect, Deliver)
            key = (effect.sender, effect.clock)
            overtaken = self.history.overtaken_by(process, key)
            assert not overtaken, f"M{key} overtakes {overtaken} at {process}"
            assert key not in self.history.order.get(process, []), f"M{key} delivered twice at {process}"
            self.history.deliver(process, key)
            delivered.append(key)
        self.delivered += len(delivered)
        self._check_log(process)
        return delivered

    def drain(self, dice):
        while self.in_flight:
            self.arrive(*self.in_flight[dice.randrange(len(self.in_flight))])
        assert not self.history.undelivered()
        assert not any(machine.pending() for machine in self.machines)

    def _check_log(self, process):
        if self.optimal:
            assert self.machines[process].log_units() == self.history.log(process), f"log of {process}"
