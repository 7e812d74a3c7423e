"""Recorded journals are read by a node, and links begin with the same bytes."""

import asyncio
import shutil

import pytest

from golden import access
from happened import wire
from happened.net import payloads, records
from happened.wire import packets, resent

JOURNALS, LINKS = access.load("journals.json"), access.load("links.json")
CONTROL = ("membership", "site_news", "token_frames", "unordered_message")


def delivered_again(node):
    """Everything that waits for the application, none of it acknowledged."""
    found = []
    while (message := node.receive_nowait()) is not None:
        found.append([message.number, message.name, message.payload.hex()])
    return found


def test_the_journals_hold_what_they_are_kept_for():
    for story, recorded in JOURNALS.items():
        assert any(link["frames"] for link in recorded["state"]["links"].values())
        assert recorded["unacknowledged"] and recorded["arrivals"]
        assert recorded["state"]["pending"] or story != "ks"
    assert JOURNALS["members"]["state"]["members"] == ["alice", "carol", "dave"]


@pytest.mark.parametrize("story", JOURNALS)
def test_a_node_goes_on_from_a_recorded_journal_and_again_after_a_restart(story, tmp_path):
    recorded, path = JOURNALS[story], tmp_path / "copy.journal"
    shutil.copy(access.HERE / f"{story}.journal", path)

    async def scenario():
        node = access.node(recorded, path)
        await node.start()
        assert access.shown_node(node) == recorded["state"]
        again = delivered_again(node)
        assert again == recorded["unacknowledged"]
        for peer, number, frame in recorded["arrivals"]:
            node.host.arrived(peer, [(number, bytes.fromhex(frame))])
        await node.flush()
        assert await node.multicast(list(node.members), b"next") == recorded["sends"]
        assert access.shown_node(node) == recorded["state_after"]
        assert again + delivered_again(node) == recorded["unacknowledged_after"]
        await node.close()
        node = access.node(recorded, path)
        await node.start()
        assert access.shown_node(node) == recorded["state_after"]
        assert delivered_again(node) == recorded["unacknowledged_after"]
        await node.close()

    asyncio.run(asyncio.wait_for(scenario(), 30))


@pytest.mark.parametrize("mode", ["PLAINTEXT", "SHARED_KEY", "TLS"])
def test_a_handshake_is_said_in_the_same_bytes(mode):
    first, answer, proof = map(bytes.fromhex, LINKS[mode]["said"])
    sealed = list(map(bytes.fromhex, LINKS[mode]["sealed"]))
    alice, bob = access.handshakes(mode)
    assert alice.begin() == first
    assert bob.receive(first) == answer
    assert alice.receive(answer) == proof
    assert bob.receive(proof) == b""
    assert (alice.peer, bob.peer) == ("bob", "alice")
    assert [alice.channel.seal(b"one"), alice.channel.seal(b"two")] == sealed
    assert [bob.channel.open(each) for each in sealed] == [b"one", b"two"]


@pytest.mark.parametrize("module", CONTROL)
def test_what_links_carry_besides_messages_is_read_and_written_with_the_same_bytes(module):
    codec = getattr(wire, module)
    for frame, said in LINKS[module].items():
        message = codec.decode(bytes.fromhex(frame))
        assert repr(message) == said and codec.encode(message).hex() == frame


def test_a_hello_and_other_records_are_read_and_written_with_the_same_bytes():
    recorded = {name: bytes.fromhex(data) for name, data in LINKS["other"].items()}
    ((number, body),) = records.frames_in(recorded["hello"], limit=1 << 20)
    said = records.read_control(body)
    hello = records.checked_hello(said)
    assert number == 0 and said["have"] == 3
    assert (hello.incarnation, hello.knows) == (b"\xaa" * 8, b"\xbb" * 8)
    assert (hello.protocol, hello.members) == ("ks", ("alice", "bob", "Zoë"))
    again = records.with_check(hello=records.hello_to_json(hello), have=3)
    assert records.control(**again) == recorded["hello"]
    frames = records.frames_in(recorded["records"], limit=1 << 20)
    assert frames == [(1, b"one"), (2, b""), (0, b'{"refused":"no"}'), (0, b"")]
    packet = packets.decode(recorded["packet"])
    assert packet.numbered("bob") == [(7, b"x"), (8, b"")]
    assert resent.decode(recorded["resent"]) == (3, b"frame")
    assert payloads.open_sealed(recorded["payload"])[:2] == (b"body", {"naïve": "é"})
