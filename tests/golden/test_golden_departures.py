"""What the first version with steps of a departure wrote is still read, and means what it meant."""

import pytest

from golden import access
from happened import wire
from happened.ordering import protocols

MACHINES = access.stories("departures/machines")
ENGINES = access.stories("departures/engines")


def test_every_protocol_that_may_be_left_is_recorded():
    assert MACHINES.keys() >= {name for name, facts in protocols().items() if facts.departures} - NEW


NEW: set[str] = set()
"""Protocols that came later; they need no fixture."""


@pytest.mark.parametrize("story", MACHINES)
def test_frames_are_read_and_written_with_the_same_bytes(story):
    for kind, frame in access.load(MACHINES[story])["frames"].items():
        message, _ = wire.decode(bytes.fromhex(frame))
        assert type(message).__name__ == kind and wire.encode(message).hex() == frame


@pytest.mark.parametrize("story", MACHINES)
def test_a_machine_answers_changes_as_it_did(story):
    recorded = access.load(MACHINES[story])
    machine = access.machine(recorded["protocol"], recorded["me"], recorded["n"], recorded["options"])
    restored = access.machine(recorded["protocol"], recorded["me"], recorded["n"], recorded["options"])
    assert {"leaves", "is closed"} <= {step["input"] for step in recorded["steps"]}
    for number, step in enumerate(recorded["steps"]):
        if number == recorded["until_snapshot"]:
            assert access.snapshot_as_recorded(machine).decode() == recorded["snapshot"]
            restored.restore(recorded["snapshot"].encode())
        assert access.perform(machine, step) == step.get("effects")
        if number >= recorded["until_snapshot"]:
            assert access.perform(restored, step) == step.get("effects")
    for each in (machine, restored):
        assert access.snapshot_as_recorded(each).decode() == recorded["snapshot_after"]


@pytest.mark.parametrize("story", ENGINES)
def test_a_journal_with_changes_is_replayed_to_the_same_state(story):
    recorded = access.load(ENGINES[story])
    engine = access.engine(recorded)
    shown = access.shown_engine(engine)
    assert shown == {key: recorded[key] for key in shown}
    assert (engine.members.departures or engine.roster.former) and any(shown["outboxes"].values())
