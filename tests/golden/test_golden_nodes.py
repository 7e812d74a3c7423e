"""Journals of version 0.1.0 are still read by a node, and links still begin with the same bytes."""

import asyncio
import shutil

import pytest

from golden import access
from happened.core.errors import LocalProtocolError

JOURNALS = access.stories("journals")
every_journal = pytest.mark.parametrize("story", JOURNALS)
LINKS = access.load(access.HERE / "links.json")


def copied(story, tmp_path):
    path = tmp_path / "copy.journal"
    shutil.copy(JOURNALS[story].with_suffix(".journal"), path)
    return path


def run(test):
    asyncio.run(asyncio.wait_for(test, 30))


def delivered_again(node):
    """Everything that waits for the application, none of it acknowledged."""
    found = []
    while (message := node.receive_nowait()) is not None:
        found.append([message.number, message.name, message.payload.hex()])
    return found


def shown(node, recorded):
    told = access.shown_node(node)
    return access.node_as_then(told) if recorded["protocol"] == access.PLACED else told


def test_the_journals_hold_what_they_are_kept_for():
    recorded = {story: access.load(path) for story, path in JOURNALS.items()}
    assert len(recorded) == 17
    for protocol in ("ks", "histories", "agreed", "bss-groups"):
        assert recorded[protocol]["state"]["pending"]
    for story, each in recorded.items():
        links = each["state"]["links"].values()
        assert any(link["frames"] for link in links)
        assert each["unacknowledged"] or story.endswith(("-hears", "-decides"))


@every_journal
def test_a_node_goes_on_from_a_recorded_journal(story, tmp_path):
    recorded = access.load(JOURNALS[story])
    path = copied(story, tmp_path)

    async def scenario():
        node = access.node(recorded, path)
        await node.start()
        assert shown(node, recorded) == recorded["state"]
        again = delivered_again(node)
        assert again == recorded["unacknowledged"]
        for arrival in recorded["arrivals"]:
            node.host.arrived(arrival["peer"], [(arrival["number"], bytes.fromhex(arrival["frame"]))])
        await node.flush()
        if recorded["sends"] is not None:
            assert await node.multicast(recorded["sends"]["to"], b"next") == recorded["sends"]["name"]
        else:
            with pytest.raises(LocalProtocolError):
                await node.multicast(list(node.members), b"next")
        assert shown(node, recorded) == recorded["state_after"]
        assert again + delivered_again(node) == recorded["unacknowledged_after"]
        await node.close()

    run(scenario())


@every_journal
def test_what_a_node_adds_to_a_recorded_journal_is_there_after_a_restart(story, tmp_path):
    recorded = access.load(JOURNALS[story])
    path = copied(story, tmp_path)

    async def scenario():
        node = access.node(recorded, path)
        await node.start()
        for arrival in recorded["arrivals"]:
            node.host.arrived(arrival["peer"], [(arrival["number"], bytes.fromhex(arrival["frame"]))])
        if recorded["sends"] is not None:
            await node.multicast(recorded["sends"]["to"], b"next")
        await node.close()
        node = access.node(recorded, path)
        await node.start()
        assert shown(node, recorded) == recorded["state_after"]
        assert delivered_again(node) == recorded["unacknowledged_after"]
        await node.close()

    run(scenario())


def test_recorded_changes_of_members_are_understood_and_passed_on():
    """dave is admitted and bob expelled, by frames alone."""
    joins = bytes.fromhex("ff5b312c20332c202264617665222c20223132372e302e302e313a39225d")
    leaves = bytes.fromhex("ff5b322c20312c2022222c2022225d")
    assert joins == b'\xff[1, 3, "dave", "127.0.0.1:9"]' and leaves == b'\xff[2, 1, "", ""]'
    new = {"name": "carol", "protocol": "ks", "options": {}, "first_members": ["alice", "bob", "carol"]}

    async def scenario():
        node = access.node(new, None)
        await node.start()
        node.host.arrived("alice", [(1, joins)])
        await node.flush()
        assert node.members == ("alice", "bob", "carol", "dave")
        node.host.arrived("alice", [(2, leaves)])
        await node.flush()
        assert node.members == ("alice", "carol", "dave")
        for peer in ("alice", "bob"):
            frames = access.shown_node(node)["links"][peer]["frames"]
            assert frames == [[1, joins.hex()], [2, leaves.hex()]]
        await node.close()

    run(scenario())


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


def test_what_nodes_tell_each_other_first_is_understood_and_said_in_the_same_bytes():
    data = bytes.fromhex(LINKS["hello"])
    ((number, body),) = access.frames_in(data)
    assert number == 0
    hello = access.hello_in(body)
    assert (hello.incarnation, hello.knows) == (b"\xaa" * 8, b"\xbb" * 8)
    assert (hello.protocol, hello.members) == ("ks", ("alice", "bob", "Zoë"))
    assert access.hello_out(hello) == data


def test_a_record_holds_frames_and_what_the_link_says():
    frames = access.frames_in(bytes.fromhex(LINKS["records"]))
    assert frames == [(1, b"one"), (2, b""), (0, b'{"have":7}'), (0, b'{"refused":"no"}'), (0, b"")]
