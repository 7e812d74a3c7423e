"""What those who stay send is delivered, whoever has left or was expelled, and rounds wait for nobody who is
gone. Where a protocol cannot promise that, it refuses and says why."""

import pytest

from churn import Churning
from happened.core.errors import LocalProtocolError
from happened.ordering import protocols


def three(protocol):
    """Engines p0, p1 and p2 with nothing on its way."""
    system = Churning(protocol, 3, 1)
    system.carry()
    return system, *system.engines.values()


def depart(system, name, *, by):
    """A process leaves and is gone, or does not answer any more and is expelled."""
    if by == name:
        system.engines[name].leave(name)
        system.carry()
    gone = system.engines.pop(name)
    if by != name:
        system.engines[by].leave(name)
    system.carry()
    return gone


either_way = pytest.mark.parametrize("by", ["p0", "p2"], ids=["leaves", "is expelled"])


@either_way
def test_a_multicast_after_the_coordinator_has_gone_is_delivered(by):
    system, _, p1, p2 = three("sequencer")
    depart(system, "p0", by=by)
    p1.multicast([1, 2], b"confirmed")
    system.carry()
    assert p1.delivered == p2.delivered == 1
    assert not p1.outboxes[2]


@either_way
def test_a_multicast_that_is_with_the_coordinator_when_it_goes_is_delivered(by):
    system, _, p1, p2 = three("sequencer")
    p1.multicast([1, 2], b"confirmed")
    p1.release(p1.cut())
    depart(system, "p0", by=by)
    assert p1.delivered == p2.delivered == 1 and not p1.pending() and not p2.pending()


@either_way
def test_broadcasts_are_flooded_without_the_departed(by):
    system, _, p1, p2 = three("flooding")
    depart(system, "p0", by=by)
    p1.multicast([1, 2], b"x")
    system.carry()
    assert p1.delivered == p2.delivered == 1


@either_way
def test_phases_are_passed_without_the_departed(by):
    system, _, p1, p2 = three("phased")
    for engine in (p1, p2, p1):
        engine.multicast([0, 1, 2], b"before")
    depart(system, "p0", by=by)
    p2.multicast([1, 2], b"after")
    p1.multicast([1, 2], b"after")
    system.carry()
    assert p1.delivered == p2.delivered == 5 and not p1.pending() and not p2.pending()


@either_way
def test_acknowledgements_of_the_departed_are_not_waited_for(by):
    system, _, p1, p2 = three("acknowledged")
    p1.multicast([0], b"never acknowledged")
    gone = system.engines.pop("p0")
    p1.multicast([2], b"next")
    if by == "p0":  # the farewell of somebody whose acknowledgement was lost to us: it left before
        gone.leave("p0")
        gone.release(gone.cut())
        for link, peer in ((1, p1), (2, p2)):
            for _, frame in gone.outboxes[link].after(0, 1 << 30):
                peer.receive(0, frame)
    else:
        p2.leave("p0")
    system.carry()
    assert p2.delivered == 1 and not p1.machine.queued


def test_what_is_queued_for_the_departed_does_not_keep_the_rest_back():
    """p1 agrees on one message at a time: the one for p0 is not begun when p0 leaves."""
    system, _, p1, p2 = three("causal-total")
    for to in ([2], [0], [2]):
        p1.multicast(to, b"x")
    p0 = system.engines.pop("p0")
    p0.leave("p0")
    p0.release(p0.cut())
    for link, peer in ((1, p1), (2, p2)):
        for _, frame in p0.outboxes[link].after(0, 1 << 30):
            peer.receive(0, frame)
    system.carry()
    assert p2.delivered == 2 and not p1.machine.queued


@pytest.mark.parametrize(
    "protocol", [name for name, facts in protocols().items() if not facts.membership.expulsions]
)
def test_an_expulsion_that_the_others_could_not_survive_is_refused_with_the_reason(protocol):
    _, _, p1, _ = three(protocol)
    before = tuple(p1.roster)
    with pytest.raises(LocalProtocolError, match=f"'p0' cannot be expelled from {protocol}: .* let it leave"):
        p1.leave("p0")
    assert tuple(p1.roster) == before
