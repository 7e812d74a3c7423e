"""Frames and snapshots of version 0.1.0 are still read, and machines go on from them as they would have."""

import pytest

from golden import access
from happened import ordering, tracking, wire

ORDERING = access.stories("ordering")
TRACKING = access.stories("tracking")
every_system = pytest.mark.parametrize("story", ORDERING)
every_tracker = pytest.mark.parametrize("story", TRACKING)


def restored(recorded):
    machine = access.machine(recorded["protocol"], recorded["me"], recorded["n"], recorded["options"])
    machine.restore(recorded["snapshot"].encode())
    return machine


def test_every_protocol_of_then_is_recorded_and_still_known():
    """A protocol that is added later needs no fixture; one that was there may not go."""
    recorded = {access.load(path)["protocol"] for path in ORDERING.values()}
    assert len(recorded) == 24
    assert recorded <= ordering.protocols().keys() | access.UNREGISTERED.keys()
    trackers = {access.load(path)["protocol"] for path in TRACKING.values()}
    assert len(trackers) == 22
    assert trackers - {"p2:2"} <= tracking.protocols().keys()


@every_system
def test_a_recorded_frame_says_what_it_said(story):
    frames = access.load(ORDERING[story])["frames"]
    assert len(frames) >= 5
    for recorded in frames:
        data = bytes.fromhex(recorded["frame"])
        message, size = wire.decode(data + b"what follows")
        assert size == len(data)
        told = access.shown_message(message)
        assert told == {key: recorded[key] for key in told}


@every_system
def test_a_recorded_frame_is_encoded_to_the_same_bytes(story):
    for recorded in access.load(ORDERING[story])["frames"]:
        data = bytes.fromhex(recorded["frame"])
        message, _ = wire.decode(data)
        assert wire.encode(message) == data


@every_system
def test_a_machine_goes_on_from_a_recorded_snapshot(story):
    recorded = access.load(ORDERING[story])
    machine = restored(recorded)
    assert access.shown_pending(machine) == recorded["pending"]
    delivered = 0
    for step in recorded["steps"]:
        effects = access.perform(machine, step)
        if recorded["protocol"] == access.PLACED and effects is not None:
            effects = access.effects_as_then(effects)
        assert effects == step.get("effects")
        delivered += sum(kind == "deliver" for kind, *_ in effects or ())
    assert delivered >= len(recorded["pending"]) - len(recorded["pending_after"])
    assert access.shown_pending(machine) == recorded["pending_after"]


REWRITTEN = {"ks", "labelled", "zoned-ks"}
"""Since 0.2.0, ks and what is made of it write their state as all others do; those of 0.1.0 are read."""


@every_system
def test_a_snapshot_is_written_with_the_same_bytes(story):
    recorded = access.load(ORDERING[story])
    machine, other = restored(recorded), restored(recorded)
    for moment in ("snapshot", "snapshot_after"):
        if moment == "snapshot_after":
            for step in recorded["steps"]:
                access.perform(machine, step)
        written = recorded[moment].encode()
        if recorded["protocol"] == access.PLACED:
            other.restore(machine.snapshot())
            assert other.snapshot() == machine.snapshot()
            assert access.snapshot_as_then(machine.snapshot()) == written
            continue
        if recorded["protocol"] in REWRITTEN:
            other.restore(written)
            written = other.snapshot()
            assert written != recorded[moment].encode()
            other.restore(written)
            assert other.snapshot() == written
        assert access.snapshot_as_recorded(machine) == written


@every_tracker
def test_a_tracker_goes_on_from_a_recorded_snapshot(story):
    recorded = access.load(TRACKING[story])
    tracker = access.tracker(recorded["protocol"], recorded["me"], recorded["n"])
    tracker.restore(recorded["snapshot"].encode())
    assert {step["input"] for step in recorded["steps"]} == {"relevant", "send", "receive"}
    for step in recorded["steps"]:
        assert access.track(tracker, step) == step["tells"]


@every_tracker
def test_a_trackers_snapshot_is_written_with_the_same_bytes(story):
    recorded = access.load(TRACKING[story])
    tracker = access.tracker(recorded["protocol"], recorded["me"], recorded["n"])
    tracker.restore(recorded["snapshot"].encode())
    assert tracker.snapshot() == recorded["snapshot"].encode()
    for step in recorded["steps"]:
        access.track(tracker, step)
    assert tracker.snapshot() == recorded["snapshot_after"].encode()
