"""Record what machines and engines do when members change, in the first version that knows the steps of a
departure: tests/golden/departures. Later versions must read it. It was made once, by

    PYTHONPATH=tests:tests/net .venv/bin/python tests/golden/record_departures.py

Of each protocol that processes may leave: the inputs of one machine in a random run, with the effects that it
answered, and its snapshots. Of two protocols: the journal of an engine whose peers join, leave and are
expelled, and the frames in its outboxes afterwards.
"""

from churn import Churning
from contract.drive import Dice, System, may_depart, options
from golden import access
from golden.access import HERE
from happened import wire
from happened.ordering import protocols

N = 4
STEPS = 60
FOLDER = HERE / "departures"


class Recorded:
    """A machine that keeps its inputs and effects."""

    def __init__(self, machine):
        self._machine, self.steps = machine, []

    def __getattr__(self, name):
        return getattr(self._machine, name)

    def _note(self, step, effects):
        self.steps.append(step | {"effects": access.shown_effects(effects)})
        return effects

    def multicast(self, to, payload):
        made = self._machine.multicast(to, payload)
        self._note({"input": "multicast", "to": sorted(to), "payload": payload.hex()}, made.effects)
        return made

    def receive(self, message):
        frame = wire.encode(message).hex()
        return self._note({"input": "receive", "frame": frame}, self._machine.receive(message))

    def hand_over(self, to):
        return self._note({"input": "hand_over", "to": to}, self._machine.hand_over(to))

    def follow(self, token):
        self.steps.append({"input": "follow", "token": list(token)})
        self._machine.follow(token)

    def join(self, process):
        return self._note({"input": "joins", "process": process}, self._machine.join(process))

    def leave(self, process):
        return self._note({"input": "leaves", "process": process}, self._machine.leave(process))

    def close(self, process):
        return self._note({"input": "is closed", "process": process}, self._machine.close(process))

    def forget(self, process):
        self._machine.forget(process)
        self.steps.append({"input": "is forgotten", "process": process})


def machine_story(name, facts):
    dice = Dice(f"departures of {name}")
    system = System(facts, N)
    system.machines = [Recorded(machine) for machine in system.machines]
    middle = None
    for number in range(STEPS):
        if system.in_flight and dice.random() < 0.6:
            system.arrive(dice)
        else:
            system.multicast(dice)
        system.settle(dice)
        if number == STEPS // 3:
            if facts.waits_at_sender:
                system.drain(dice)  # nobody leaves before it has sent everything
            system.leave(3)
        if number == STEPS // 2:
            middle = len(system.machines[1].steps), system.machines[1].snapshot().decode()
            if facts.expulsions:
                system.expel(dice, 0)
            elif may_depart(system):
                system.leave(0)
        if number == STEPS * 3 // 4 and facts.joins:
            system.join()
    system.drain(dice)
    told = system.machines[1]
    kinds = {type(message).__name__: wire.encode(message).hex() for message in system.made}
    return {
        "protocol": name,
        "n": N,
        "me": 1,
        "options": {key: [sorted(each) for each in sets] for key, sets in options(facts, N).items()},
        "frames": kinds,
        "steps": told.steps,
        "until_snapshot": middle[0],
        "snapshot": middle[1],
        "snapshot_after": told.snapshot().decode(),
    }


def engine_story(name):
    """p1's journal: p0 leaves, p2 is expelled, p4 and p5 join, and all talk meanwhile."""
    system = Churning(name, 4, 1)
    journal = []
    told = system.engines["p1"]
    cut = told.cut

    def kept():
        batch = cut()
        journal.append(batch.entries.hex())
        return batch

    told.cut = kept
    system.talk(8)
    told.multicast([0, 2, 3], b"before")
    system.engines["p0"].leave("p0")
    system.carry()
    del system.engines["p0"], system.engines["p2"]
    told.leave("p2")
    system.carry()
    for newcomer in ("p4", "p5"):
        told.join(newcomer, "nowhere")
        names = [told.roster.name(index) for index in range(len(told.roster))]
        system.engines[newcomer] = type(told)(newcomer, names, name)
        system.talk(6)
    told.multicast([told.roster.index(each) for each in told.roster], b"after")
    told.release(told.cut())
    return {"protocol": name, "journal": [entries for entries in journal if entries]} | access.shown_engine(
        told
    )


if __name__ == "__main__":
    for name, facts in protocols().items():
        if facts.departures:
            access.save(FOLDER / "machines" / f"{name}.json", machine_story(name, facts))
    for name in ("ks", "sequencer"):
        access.save(FOLDER / "engines" / f"{name}.json", engine_story(name))
