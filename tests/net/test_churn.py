"""What messages carry does not grow with the changes that a system has been through."""

import pytest

from churn import Churning

CHURNING = ("ks", "histories", "topological", "zoned-ks")


@pytest.mark.parametrize("protocol", CHURNING)
def test_churn_does_not_make_messages_longer(protocol, seed):
    steady = Churning(protocol, 6, seed)
    steady.talk(200)
    system = Churning(protocol, 6, seed)
    for _ in range(40):
        system.talk(8)
        system.replace()
    system.talk(60)
    assert max(len(engine.roster) for engine in system.engines.values()) <= 9, "indices are given again"
    assert not any(engine.pending() for engine in system.engines.values())
    assert system.bytes_per_message(300) <= 2 * steady.bytes_per_message(300)
