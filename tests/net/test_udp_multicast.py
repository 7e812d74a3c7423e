"""Nodes with UDP multicast beside their links: one datagram for all, and what the links must repair."""

import asyncio
from contextlib import asynccontextmanager
from random import Random

import pytest
from keyed_stamps import CLUSTER, Stamps
from netcluster import QUICK, Cluster, free_ports, schedule
from netprocess import lose_datagrams
from test_node import addresses, crash, run, take, until

from happened.causality import check_delivery, check_order
from happened.net import Limits, Node, Plaintext, SharedKey, UdpMulticast
from happened.net.udp_multicast import AHEAD, BEACON, FRAMES, MAC_BYTES, Seal
from happened.trace import read
from happened.wire import packets

KEY, OTHER_KEY = bytes(range(32)), bytes(32)
NEVER = 600.0


def new_group():
    return f"239.255.77.1:{free_ports(1)[0]}"


def make(name, where, group, *, guard=None, repair=NEVER, is_in_group=True, limits=None, **more):
    limits = Limits(**{**QUICK, "linger": 0.2, **(limits or {})})
    medium = UdpMulticast(group, repair=repair, beat=5.0) if is_in_group else None
    guard = guard or Plaintext()
    options = {} if medium is not None or more.get("protocol") else {"hardware_multicast": True}
    more = {"options": options, **more}
    return Node(name, peers=where, listen=where[name], guard=guard, limits=limits, medium=medium, **more)


@asynccontextmanager
async def system(*names, group=None, outside=(), **more):
    """Nodes whose medium is ready: everybody in the group hears everybody else there."""
    where, group = addresses(*names), group or new_group()
    made = {name: make(name, where, group, is_in_group=name not in outside, **more) for name in names}
    try:
        for node in made.values():
            await node.start()
        await hearing([node for name, node in made.items() if name not in outside])
        yield made
    finally:
        await asyncio.gather(*(node.close() for node in made.values()))


async def hearing(nodes):
    def ready():
        return all(
            node.transport._claims_of(other.name, 1, asyncio.get_running_loop().time()) is not None
            for node in nodes
            for other in nodes
            if node is not other
        )

    await until(ready, "they do not hear one another")


def listener(group):
    """A socket of the test that hears the group too."""
    hears, sends = UdpMulticast(group).open()
    sends.close()
    hears.setblocking(True)
    hears.settimeout(5)
    return hears


def inject(group, *datagrams):
    hears, sends = UdpMulticast(group).open()
    with hears, sends:
        for datagram in datagrams:
            sends.sendto(datagram, UdpMulticast(group).group)


def medium(node):
    return node.stats()["medium"]


def test_a_multicast_is_one_datagram_for_all_and_no_frame_on_any_link():
    async def test():
        async with system("alice", "bob", "carol", "dave") as nodes:
            for number in range(20):
                await nodes["alice"].multicast(["bob", "carol", "dave"], b"%d" % number)
                for name in ("bob", "carol", "dave"):
                    assert await take(nodes[name], 1) == [f"alice:{number + 1}"]
            counts = medium(nodes["alice"])
            assert (counts["packets"], counts["copies"]) == (20, 60)
            assert counts["repaired"] == 0  # and it would take ten minutes
            assert all(medium(nodes[name])["received"] == 20 for name in ("bob", "carol", "dave"))
            await until(lambda: not nodes["alice"].stats()["peers"]["bob"]["outbox_frames"])

    run(test())


@pytest.mark.parametrize("guard", [Plaintext(), SharedKey(KEY)], ids=["plaintext", "shared key"])
def test_frames_for_one_keep_their_place_among_those_for_all(guard):
    async def test():
        async with system("alice", "bob", "carol", guard=guard, repair=0.2) as nodes:
            to_all, expected = [], []
            for number in range(300):
                to = ["bob"] if number % 3 == 1 else ["bob", "carol"]
                size = 5000 if number % 50 == 7 else 10  # too long for a datagram
                expected.append(nodes["alice"].multicast_nowait(to, bytes(size)))
                to_all += expected[-1:] if "carol" in to else []
                if number % 7 == 0:
                    await asyncio.sleep(0)
            assert await take(nodes["bob"], 300) == expected
            assert await take(nodes["carol"], 200) == to_all
            assert medium(nodes["alice"])["copies"] > 100

    run(test())


def test_a_destination_that_is_not_in_the_group_gets_its_copy_by_its_link_at_once():
    async def test():
        async with system("alice", "bob", "carol", "dave", outside=("dave",)) as nodes:
            for number in range(10):
                await nodes["alice"].multicast(["bob", "carol", "dave"], b"x")
                for name in ("bob", "carol", "dave"):
                    assert await take(nodes[name], 1) == [f"alice:{number + 1}"]
            assert medium(nodes["alice"])["copies"] == 20
            await nodes["dave"].multicast(["alice", "bob"], b"y")
            assert await take(nodes["bob"], 1) == ["dave:1"]

    run(test())


def test_a_destination_that_hears_nothing_any_more_is_served_by_the_links():
    async def test():
        async with system("alice", "bob", "carol", repair=0.05) as nodes:
            transport = nodes["bob"].transport
            asyncio.get_running_loop().remove_reader(transport._sockets[0])
            await nodes["alice"].multicast(["bob", "carol"], b"x")
            assert await take(nodes["bob"], 1) == ["alice:1"]
            assert medium(nodes["alice"])["repaired"] >= 1

    run(test())


@pytest.mark.parametrize("protocol", ["ks", "bss"])
def test_lost_repeated_and_reordered_datagrams_change_nothing(tmp_path, seed, protocol):
    names, each = ("alice", "bob", "carol", "dave"), 120

    async def send(node):
        for _ in range(each):
            await node.multicast([name for name in names if name != node.name], b"x" * 30)

    async def test():
        trace = {"trace": tmp_path / "trace", "protocol": protocol, "repair": 0.03}
        async with system(*names, **trace) as nodes:
            for node in nodes.values():
                lose_datagrams(node.transport, Random(f"{seed}/{node.name}"), 0.15)
            senders = [asyncio.create_task(send(node)) for node in nodes.values()]
            await asyncio.gather(*(take(node, 3 * each) for node in nodes.values()), *senders)
            assert sum(medium(node)["repaired"] for node in nodes.values()) > 0

    run(test())
    judge(tmp_path / "trace", 4 * each, 12 * each)


def judge(directory, messages, deliveries):
    trace = read(directory)
    found = check_delivery(trace)
    assert (found.messages, found.deliveries) == (messages, deliveries)
    assert (found.lost, found.duplicated, found.misdelivered, found.never_sent) == (0, 0, 0, 0)
    assert check_order(trace, "causal").holds


def test_piggybacks_of_a_tracker_for_all_are_in_one_datagram():
    async def test():
        async with system("alice", "bob", "carol", tracker="p3-reduced") as nodes:
            for number in range(5):
                nodes["alice"].relevant(f"before {number}")
                sent = await nodes["alice"].multicast(["bob", "carol"], b"x")
                for name in ("bob", "carol"):
                    assert await take(nodes[name], 1) == [sent]
            assert (medium(nodes["alice"])["packets"], medium(nodes["alice"])["copies"]) == (5, 10)
            assert nodes["carol"].relevant("after").predecessors == {("alice", 5)}

    run(test())


def test_a_process_that_joins_gets_its_copy_from_the_medium_and_one_that_leaves_none():
    async def test():
        group = new_group()
        async with system("alice", "bob", "carol", group=group) as nodes:
            where = addresses("dave")
            members = await nodes["alice"].join("dave", where["dave"])
            peers = {name: nodes[name].transport.address for name in ("alice", "bob", "carol")}
            dave = make("dave", {**peers, **where}, group, members=members)
            await dave.start()
            await hearing([*nodes.values(), dave])
            for node in (*nodes.values(), dave):
                others = [name for name in (*nodes, "dave") if name != node.name]
                before = medium(node)["copies"]
                await node.multicast(others, b"x")
                await node.flush()
                assert medium(node)["copies"] == before + 3
            for node in (*nodes.values(), dave):
                assert len(await take(node, 3)) == 3
            await dave.leave()
            await dave.close()
            await nodes["bob"].multicast(["alice", "carol"], b"y")
            assert [name.split(":")[0] for name in await take(nodes["carol"], 1)] == ["bob"]

    run(test())


def test_a_node_that_is_full_takes_no_datagrams():
    async def test():
        limits = {"undelivered": 5}
        async with system("alice", "bob", "carol", repair=0.05, limits=limits) as nodes:
            for _ in range(100):
                await nodes["alice"].multicast(["bob", "carol"], b"x")
            await until(lambda: nodes["bob"].stats()["peers"]["alice"]["paused"])
            await until(lambda: nodes["carol"].stats()["peers"]["alice"]["paused"])
            arrived = nodes["bob"].delivered
            await nodes["alice"].multicast(["bob", "carol"], b"x")
            await until(lambda: medium(nodes["alice"])["repaired"] > 0)
            assert nodes["bob"].delivered == arrived < 100
            for name in ("bob", "carol"):
                assert len(await take(nodes[name], 101)) == 101

    run(test())


def test_forged_and_replayed_datagrams_are_refused():
    async def test():
        group = new_group()
        async with system("alice", "bob", "carol", group=group, guard=SharedKey(KEY), repair=0.05) as nodes:
            with listener(group) as hears:
                await nodes["alice"].multicast(["bob", "carol"], b"true")
                assert await take(nodes["bob"], 1) == ["alice:1"]
                while (real := hears.recv(1 << 16))[:1] != FRAMES:
                    pass
            packet = packets.decode(real[1:-MAC_BYTES])
            forged = packets.encode("alice", packet.incarnation, {"bob": 2, "carol": 2}, packet.frames)
            wrong = [
                FRAMES + forged,
                FRAMES + forged + bytes(MAC_BYTES),
                Seal(OTHER_KEY, UdpMulticast(group).group).close(FRAMES + forged),
                Seal(KEY, ("239.255.77.1", 1)).close(FRAMES + forged),  # of another group
                real[:-1] + bytes([real[-1] ^ 1]),
                b"",
                b"F",
            ]
            # A datagram that comes before its sender's link is refused, too.
            before = {name: medium(nodes[name])["refused"] for name in ("bob", "carol")}
            inject(group, *wrong, real, real)
            await until(lambda: all(medium(nodes[name])["refused"] == before[name] + 7 for name in before))
            await nodes["alice"].multicast(["bob", "carol"], b"second")
            for name in ("bob", "carol"):
                rest = 2 if name == "carol" else 1
                assert await take(nodes[name], rest) == ["alice:1", "alice:2"][-rest:]
                assert nodes[name].receive_nowait() is None

    run(test())


def test_where_nodes_sign_another_holder_of_the_key_cannot_speak_for_one():
    """Links by certificates need no key for the medium then: here there is one, and mallory has it too."""

    def signing(name, where, group, **more):
        return make(name, where, group, cluster=CLUSTER, signatures=Stamps(name), **more)

    async def test():
        group, names = new_group(), ("alice", "bob", "carol")
        where = addresses(*names)
        nodes = [signing(name, where, group, guard=SharedKey(KEY), repair=0.05) for name in names]
        alice, bob, carol = nodes
        await asyncio.gather(*(node.start() for node in nodes))
        await hearing(nodes)
        await alice.multicast(["bob", "carol"], b"true")
        assert await take(bob, 1) == ["alice:1"] == await take(carol, 1)
        assert medium(alice)["copies"] == 2 and not medium(bob)["refused"]
        life = alice.host.hello("bob").incarnation
        forged = FRAMES + packets.encode("alice", life, {"bob": 2, "carol": 2}, [b"junk"])
        beacon = bytearray()
        for text in (b"alice", life):
            beacon += bytes((len(text),)) + text
        for signer in (None, Stamps("carol")):
            seal = Seal(KEY, UdpMulticast(group).group, signer)
            inject(group, seal.close(forged), seal.close(BEACON + bytes(beacon)))
        await until(lambda: medium(bob)["refused"] == medium(carol)["refused"] == 4)
        assert not bob.transport.peers["alice"].early
        await alice.multicast(["bob", "carol"], b"second")
        assert await take(bob, 1) == ["alice:2"] == await take(carol, 1)
        await asyncio.gather(*(node.close() for node in nodes))

    run(test())


def test_datagrams_of_strangers_of_another_life_and_from_far_ahead_are_not_taken():
    async def test():
        group = new_group()
        async with system("alice", "bob", "carol", group=group, repair=0.05) as nodes:
            alive = nodes["alice"].host.hello("bob").incarnation
            junk = [b"junk"]
            strange = [
                FRAMES + packets.encode("mallory", alive, {"bob": 1}, junk),
                FRAMES + packets.encode("alice", alive, {"carol": 1}, junk),  # not bob's: carol refuses it
                FRAMES + packets.encode("alice", bytes(8), {"bob": 1}, junk),
                FRAMES + packets.encode("alice", alive, {"bob": 1 + AHEAD}, junk),
                FRAMES + packets.encode("bob", alive, {"bob": 1}, junk),
                b"?what",
            ]
            refused = 0
            for _ in range(20):  # datagrams may be lost
                before = medium(nodes["bob"])["refused"]
                inject(group, *strange)
                await asyncio.sleep(0.3)
                refused = medium(nodes["bob"])["refused"] - before
                if refused == 2:
                    break
            assert refused == 2  # another life, unknown kind
            assert not nodes["bob"].transport.peers["alice"].early
            assert nodes["bob"].stats()["refused"] == 0
            await nodes["alice"].multicast(["bob", "carol"], b"x")
            for name in ("bob", "carol"):
                assert await take(nodes[name], 1) == ["alice:1"]

    run(test())


@pytest.mark.parametrize("victim", ["alice", "bob"])
def test_a_sender_and_a_receiver_die_and_come_back_in_the_middle(tmp_path, victim):
    names = ("alice", "bob", "carol")

    async def test():
        where, group = addresses(*names), new_group()

        def born(name):
            more = {"journal": tmp_path / f"{name}.journal", "trace": tmp_path / "trace", "flush": False}
            return make(name, where, group, repair=0.05, **more)

        nodes = {name: born(name) for name in names}
        for node in nodes.values():
            await node.start()
        await hearing(list(nodes.values()))
        for _ in range(50):
            nodes["alice"].multicast_nowait(["bob", "carol"], b"x")
        await nodes["alice"].flush()
        await crash(nodes[victim])
        if victim != "alice":
            for _ in range(50):
                nodes["alice"].multicast_nowait(["bob", "carol"], b"y")
        nodes[victim] = born(victim)
        await nodes[victim].start()
        await hearing(list(nodes.values()))
        while nodes["alice"].sent < 150:
            await nodes["alice"].multicast(["bob", "carol"], b"z")
        for name in ("bob", "carol"):
            await until(lambda name=name: nodes[name].delivered == 150)
        assert medium(nodes["alice"])["copies"]
        await asyncio.gather(*(node.close() for node in nodes.values()))

    run(test())
    judge(tmp_path / "trace", 150, 300)


@pytest.mark.sampled
def test_five_processes_are_killed_and_cut_while_datagrams_get_lost(tmp_path, seed):
    medium = {"group": new_group(), "repair": 0.05}
    with Cluster(tmp_path, seed, messages=100, pace=0.008, medium=medium, loss=0.05) as cluster:
        cluster.suffer(schedule(seed, 1.0, 0.4))
        assert cluster.kills >= 2
        cluster.wait(90)
        carried = cluster.last_reports("medium")
    cluster.judge()
    assert sum(each["copies"] for each in carried) > 100
    assert sum(each["repaired"] for each in carried) > 0
