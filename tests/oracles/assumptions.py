"""What each protocol may be asked, so that one test can drive them all within their assumptions."""

from dataclasses import dataclass, field
from itertools import combinations

from happened.ordering import create


@dataclass(frozen=True)
class Assumptions:
    casts: str = "multicast"  # the widest cast it orders
    serialized: bool = False  # the next sender must be told what was sent last
    joins: bool = True
    chains: int | None = None  # causal chains beyond this many messages may be violated
    names_messages: bool = True  # whether pending() names the very messages that are missing
    options: dict = field(default_factory=dict)

    def allows(self, sender, to, present):
        return self.casts != "broadcast" or set(to) | {sender} == set(present) | {sender}


def overlapping(n):
    """Every non-empty group among the first processes, and everybody."""
    few = range(min(n, 3))
    groups = [set(group) for size in range(1, len(few) + 1) for group in combinations(few, size)]
    return groups if set(range(n)) in groups else [*groups, set(range(n))]


ASSUMPTIONS = {
    "bss": Assumptions(casts="broadcast", joins=False),
    "bss-groups": Assumptions(joins=False, options={"groups": overlapping}),
    "chain-two": Assumptions(chains=2),
    "kim": Assumptions(casts="broadcast", joins=False),
    "prs": Assumptions(),
    "pruning": Assumptions(),
    "rst": Assumptions(),
    "serialized-broadcast": Assumptions(casts="broadcast", serialized=True, joins=False),
    "serialized-multicast": Assumptions(serialized=True),
    "ses": Assumptions(names_messages=False),
}


def make(name, me, n):
    options = {key: of(n) for key, of in ASSUMPTIONS[name].options.items()}
    return create(name, me, n, **options)


def system(name, n):
    return [make(name, p, n) for p in range(n)]


def hand_over(machines, sender, token):
    """Give a serialized protocol's next sender what the last one knew; others need nothing."""
    if token is not None:
        machines[sender].follow(token)
    return machines[sender]


def token_of(name, machine):
    return machine.latest if ASSUMPTIONS[name].serialized else None


def destinations(name, dice, n, sender):
    """A destination set this protocol may be asked for."""
    if ASSUMPTIONS[name].casts == "broadcast":
        return [p for p in range(n) if p != sender or dice.random() < 0.5] or [sender]
    if name == "bss-groups":
        mine = [group for group in overlapping(n) if sender in group]
        group = dice.choice(mine)
        return sorted(group if dice.random() < 0.5 or len(group) == 1 else group - {sender})
    return dice.sample(range(n), dice.randint(1, min(n, 9)))


def busy(name, n, dice, sends=40):
    """The messages of a busy system, which carry something worth looking at, and its machines."""
    machines = system(name, n)
    in_flight, made, token = [], [], None
    for _ in range(sends):
        sender = dice.randrange(n)
        machine = hand_over(machines, sender, token)
        to = destinations(name, dice, n, sender)
        effects = machine.multicast(to, dice.randbytes(dice.randint(0, 20)))
        token = token_of(name, machine)
        sent = [effect for effect in effects if len(effect) == 2]
        made += [effect.message for effect in sent]
        in_flight += sent
        while in_flight and dice.random() < 0.7:
            d, message = in_flight.pop(dice.randrange(len(in_flight)))
            machines[d].receive(message)
    return made, machines
