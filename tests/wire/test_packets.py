"""Packets of a broadcast medium: they come back as they went, and nothing hostile gets past the reader."""

from random import Random

import pytest

import effort
from happened.core.errors import RemoteProtocolError
from happened.wire import packets

GOLDEN = (
    "01 05616c696365 020102 02 07 "  # alice, her incarnation, two destinations, the smallest number
    "81b637d8fcd2 00 4c26d9074c27 a906 "  # bob at 7, carol at 816
    "0178 00"  # a frame of one byte, and an empty one
)


def test_a_packet_has_each_destinations_own_link_numbers():
    data = packets.encode("alice", b"\1\2", {"bob": 7, "carol": 816}, [b"x", b""])
    assert data == bytes.fromhex(GOLDEN)
    packet = packets.decode(data)
    assert (packet.sender, packet.incarnation) == ("alice", b"\1\2")
    assert packet.numbered("bob") == [(7, b"x"), (8, b"")]
    assert packet.numbered("carol") == [(816, b"x"), (817, b"")]
    assert packet.numbered("dave") == []


def test_packets_come_back_as_they_went(seed):
    dice = Random(seed)
    for _ in range(effort.samples(800)):
        names = [f"p{dice.randrange(1000)}ü" for _ in range(dice.randint(1, 30))]
        first = {name: dice.randint(1, 1 << dice.randint(1, 60)) for name in names}
        frames = [dice.randbytes(dice.randint(0, 300)) for _ in range(dice.randint(1, 5))]
        packet = packets.decode(packets.encode(names[0], dice.randbytes(8), first, frames))
        assert packet.sender == names[0] and packet.frames == frames
        assert all(packet.numbered(name)[0] == (number, frames[0]) for name, number in first.items())


@pytest.mark.parametrize(
    "data",
    [
        "",
        "02",
        "01",
        "01 0561",
        "01 01ff 0101 01 01 000000000000 00 00",
        "01 0161 00 00 01 0000",
        "01 0161 00 01 01",
    ],
)
def test_what_is_no_packet_is_refused(data):
    with pytest.raises(RemoteProtocolError):
        packets.decode(bytes.fromhex(data))


def test_a_packet_without_frames_or_with_number_nought_is_refused():
    for first, frames in (({"bob": 1}, []), ({"bob": 0}, [b"x"])):
        with pytest.raises(RemoteProtocolError, match="without"):
            packets.decode(packets.encode("alice", b"\1", first, frames))


def test_damaged_packets_are_read_or_refused_and_nothing_else(seed):
    dice = Random(seed)
    good = packets.encode("alice", bytes(8), {"bob": 7, "carol": 816}, [b"x" * 50, b"y" * 20])
    for _ in range(effort.samples(8000)):
        bad = bytearray(good[: dice.randint(0, len(good))] if dice.random() < 0.3 else good)
        for _ in range(dice.randint(1, 4)):
            if bad:
                bad[dice.randrange(len(bad))] = dice.randrange(256)
        try:
            packet = packets.decode(bytes(bad))
        except RemoteProtocolError:
            continue
        assert sum(map(len, packet.frames)) < len(bad)
