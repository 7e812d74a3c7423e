"""Control messages and constant control information as bytes."""

import pytest

from contract.drive import Dice, busy
from happened import wire
from happened.core.errors import RemoteProtocolError
from happened.ordering import create, protocols
from happened.ordering.total.sequencer_office import SequencerHandover


@pytest.mark.parametrize("name", ["acknowledged", "flooding", "agreed", "sequencer"])
def test_constant_control_information_stays_small_whatever_the_system(name, seed):
    made = [message for n in (3, 70) for message in busy(protocols()[name], n, Dice(seed), sends=30).made]
    sizes = [wire.control_size(message) for message in made if not isinstance(message, SequencerHandover)]
    assert len(sizes) > 60 and max(sizes) <= 6


def test_nothing_may_follow_a_control_message():
    (send,) = create("acknowledged", 0, 2).multicast([1], b"").effects
    acknowledgement, _ = create("acknowledged", 1, 2).receive(send.message)
    good = wire.encode(acknowledgement.message)
    with pytest.raises(RemoteProtocolError, match="follow the end"):
        wire.decode(good[:2] + bytes([good[2] + 1]) + good[3:] + b"x")
