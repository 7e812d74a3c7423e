"""Recorded frames and snapshots are read, and machines and trackers go on from them as they did."""

import json

import pytest

from golden import access
from happened import ordering, tracking, wire
from happened.core.errors import LocalProtocolError, RemoteProtocolError

MACHINES, TRACKERS = access.load("machines.json"), access.load("trackers.json")
every_machine = pytest.mark.parametrize("story", MACHINES)
every_tracker = pytest.mark.parametrize("story", TRACKERS)


def test_every_recorded_protocol_is_known():
    """One that is added later needs no fixture; one that was there may not go."""
    recorded = {story["protocol"] for story in MACHINES.values()}
    assert len(recorded) == 25
    assert recorded <= ordering.protocols().keys() | ordering.incomplete().keys()
    trackers = {story["protocol"] for story in TRACKERS.values()}
    assert len(trackers) == 22
    assert trackers - {"p2:2"} <= tracking.protocols().keys()


@every_machine
def test_frames_are_read_and_written_with_the_same_bytes(story):
    for kind, frame in MACHINES[story]["frames"].items():
        data = bytes.fromhex(frame)
        message, size = wire.decode(data + b"what follows")
        assert type(message).__name__ == kind and size == len(data) and wire.encode(message) == data
        with pytest.raises(RemoteProtocolError, match=r"frame of version 2, .* reads version 1; upgrade"):
            wire.decode(b"\2" + data[1:])


@every_machine
def test_a_machine_answers_as_it_did_and_goes_on_from_its_snapshot(story):
    recorded = MACHINES[story]
    machine, restored = access.machine(recorded), access.machine(recorded)
    for number, (step, effects) in enumerate(recorded["steps"]):
        if number == recorded["until_snapshot"]:
            assert machine.snapshot().decode() == recorded["snapshot"]
            restored.restore(recorded["snapshot"].encode())
        assert access.perform(machine, step) == effects
        if number >= recorded["until_snapshot"]:
            assert access.perform(restored, step) == effects
    for each in (machine, restored):
        assert each.snapshot().decode() == recorded["snapshot_after"]


@every_machine
def test_a_snapshot_of_another_version_is_refused_by_name(story):
    state = json.loads(MACHINES[story]["snapshot"])
    assert state["version"] == 1
    machine = access.machine(MACHINES[story])
    with pytest.raises(LocalProtocolError, match=rf"version 1: protocol '{state['protocol']}', version 2"):
        machine.restore(json.dumps(state | {"version": 2}).encode())


def test_the_stories_hold_what_they_are_kept_for():
    kinds = [step[0] for story in MACHINES.values() for step, _ in story["steps"]]
    assert set(kinds) >= {"multicast", "receive", "join", "leave", "expel", "close", "forget", "follow"}
    waiting = []
    for story in MACHINES.values():
        machine = access.machine(story)
        machine.restore(story["snapshot"].encode())
        waiting.append(len(machine.pending()))
    assert sum(map(bool, waiting)) > 20


@every_tracker
def test_a_tracker_goes_on_from_a_recorded_snapshot(story):
    recorded = TRACKERS[story]
    tracker = access.tracker(recorded)
    tracker.restore(recorded["snapshot"].encode())
    assert tracker.snapshot() == recorded["snapshot"].encode()
    assert {step[0] for step, _ in recorded["steps"]} == {"relevant", "send", "receive"}
    for step, told in recorded["steps"]:
        assert access.track(tracker, step) == told
    assert tracker.snapshot() == recorded["snapshot_after"].encode()
    other = json.dumps(json.loads(recorded["snapshot"]) | {"version": 2}).encode()
    with pytest.raises(LocalProtocolError, match="version"):
        access.tracker(recorded).restore(other)
