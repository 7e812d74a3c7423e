"""A protocol with a planted fault is caught by the contract, without a line of the contract changed.

Each toy is registered as a third party would do it, checked, and forgotten.
"""

from contextlib import contextmanager
from dataclasses import replace

import pytest

from contract import runs
from contract.checks import CHECKS, applies, name_of
from contract.faults import FAULTY
from contract.faulty_codecs import LOSSY, LostMessage
from contract.toy import FACTS, WholePast
from effort import SHARE
from happened import wire
from happened.core.errors import LocalProtocolError, RemoteProtocolError
from happened.ordering import protocols, register, unregister
from happened.ordering.facts import WireFormat


@contextmanager
def registered(machine):
    register(machine)
    try:
        yield machine.facts
    finally:
        unregister(machine.facts.name)


@pytest.mark.parametrize("check", [check for check in CHECKS if applies(check, FACTS)], ids=name_of)
def test_a_correct_toy_keeps_the_contract(check, seed):
    with registered(WholePast) as facts:
        check(facts, seed)


def test_a_correct_toy_runs_in_the_simulator(tmp_path, seed):
    with registered(WholePast) as facts:
        runs.check_simulated(facts, seed, tmp_path)


@pytest.mark.parametrize(
    ("machine", "check"),
    [pytest.param(machine, check, id=f"{machine.__name__}: {name_of(check)}") for machine, check in FAULTY],
)
def test_a_planted_fault_is_caught(machine, check, seed):
    """Within as many samples as `make test-slow` takes of each protocol: one in eight of them may miss."""
    for attempt in range(SHARE):
        with registered(machine) as facts:
            try:
                check(facts, seed + attempt)
            except (Exception, pytest.fail.Exception):
                return
    pytest.fail(f"{name_of(check)} has not found that {machine.__doc__}")


def test_every_check_has_a_fault_to_find():
    assert {check for _, check in FAULTY} == set(CHECKS)


def test_a_third_party_takes_a_free_name_and_a_number_that_is_not_ours():
    with registered(WholePast), pytest.raises(LocalProtocolError, match="called 'toy' already"):
        register(WholePast)
    assert "toy" not in protocols()
    for name, number, reason in (("ours", 11, "take one of 128"), ("theirs", 128, "that of toy")):
        wire = WireFormat(number, "contract.another")
        stranger = type("Stranger", (WholePast,), {"facts": replace(FACTS, name=name, wire=wire)})
        with registered(WholePast), pytest.raises(LocalProtocolError, match=reason):
            register(stranger)
    with pytest.raises(LocalProtocolError, match="'rst' was registered"):
        unregister("rst")


def test_frames_of_a_forgotten_protocol_are_unknown_and_its_number_is_free():
    """Codecs are kept once loaded; those of a protocol that is gone must not read the frames of the next."""
    with registered(WholePast) as facts:
        _, (effect, *_) = WholePast(0, 2).multicast([1], b"x")
        frame = wire.encode(effect.message)
        assert frame[1] == facts.wire.number and wire.decode(frame)[0] == effect.message
    with pytest.raises(RemoteProtocolError, match=f"unknown protocol, number {facts.wire.number}"):
        wire.decode(frame)
    with pytest.raises(LocalProtocolError, match="no wire format"):
        wire.encode(effect.message)
    other = replace(FACTS, name="other", wire=WireFormat(facts.wire.number, LOSSY))
    with registered(type("Other", (WholePast,), {"facts": other})):
        assert type(wire.decode(frame)[0]) is LostMessage
