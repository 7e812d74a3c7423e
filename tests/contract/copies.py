"""The copies of a multicast: the same bytes for all destinations, where a protocol says so."""

from dataclasses import replace

from contract.drive import Dice, System, is_application, options
from happened import wire
from happened.core.effects import Send
from happened.ordering import create


class Copying(System):
    """Notes of each multicast to several others whether their copies are the same."""

    def __init__(self, facts, n, *, act=None):
        super().__init__(facts, n, act=act)
        self.alike = []

    def perform(self, process, effects):
        copies = {}
        for effect in effects:
            if isinstance(effect, Send) and effect.to != process and is_application(effect.message):
                name = (effect.message.sender, effect.message.clock)
                copies.setdefault(name, []).append(effect.message)
        for messages in copies.values():
            if len(messages) > 1:
                self.alike.append(len(set(wire.encode_multicast(messages))) == 1)
        super().perform(process, effects)


def check_common_frame(facts, seed):
    """What `common_frame` promises; without the option it names, if it names one, that is not so."""
    if not facts.copies.common_frame:
        return
    plain = copies_of(Copying(facts, 5), Dice(seed))
    if facts.copies.common_frame is True:
        assert plain and all(plain)
        return
    assert not all(plain)
    shared = Copying(replace(facts, promises=replace(facts.promises, optimal=False)), 5)
    with_it = facts.sharing(options(facts, 5))
    shared.machines = [create(facts.name, p, 5, **with_it) for p in range(5)]
    alike = copies_of(shared, Dice(seed))
    assert alike and all(alike)


def copies_of(system, dice):
    for _ in range(30):
        system.multicast(dice)
        while system.in_flight and dice.random() < 0.7:
            system.arrive(dice)
    return system.alike
