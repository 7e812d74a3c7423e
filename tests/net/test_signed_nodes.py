"""Nodes whose messages are signed, over real sockets: relays that lie, keys that come late, kills, joins."""

import asyncio
import shutil
from pathlib import Path

import pytest
from netcluster import NAMES, QUICK, Cluster, schedule
from test_node import addresses, crash, make, run, take, until
from test_topology_nodes import addresses as site_addresses

from happened.core.errors import LocalProtocolError
from happened.net import JSON, JournalError, Limits, MutualTls, Node, Signatures, identity
from happened.net.config import ConfigError, load, make_node
from happened.net.errors import IdentityError
from happened.net.identity import paths
from happened.net.signed import HEAD
from happened.net.terms import Terms

CLUSTER = "signed"
DEPARTMENTS = Path(__file__).parents[2] / "examples" / "topologies" / "departments.yaml"


@pytest.fixture(scope="module")
def pki(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pki")
    identity.make_authority(folder)
    for name in ("a", "b", "c", "d", "m"):
        identity.issue(folder, name)
    return folder


def signatures(name, pki, members=None):
    return Signatures(name, key=paths(pki, name)[2], members=members or pki, authority=pki / "ca.pem")


def signing(name, where, tmp_path, pki, folder=None, **more):
    return make(name, where, tmp_path, cluster=CLUSTER, signatures=signatures(name, pki, folder), **more)


async def started(*nodes):
    await asyncio.gather(*(node.start() for node in nodes))
    return nodes


async def closed(*nodes):
    await asyncio.gather(*(node.close() for node in nodes))


def lies(node, lie):
    """Let a started node alter what it passes on: `lie` is given the messages of others."""
    engine = node._engine
    real = engine.encode
    engine.encode = lambda sends: real(
        [s if s.message.sender == engine.me else s._replace(message=lie(s.message)) for s in sends]
    )


ALTERED = {
    "the payload": lambda message: message._replace(payload=message.payload[:-1] + b"!"),
    "the clock": lambda message: message._replace(clock=message.clock + 1),
    "the destinations": lambda message: message._replace(dests=message.dests & ~1),
}


@pytest.mark.parametrize("what", ALTERED)
def test_a_relay_that_alters_is_refused_and_the_honest_way_delivers(tmp_path, pki, what):
    """a's broadcasts come to b by m, altered, and as they were by c, which is started later."""
    overlay = [["a", "m"], ["m", "b"], ["a", "c"], ["c", "b"]]
    options = {"protocol": "flooding", "options": {"overlay": overlay}}

    async def scenario():
        where = addresses("a", "b", "c", "m")
        a, b, c, m = (signing(name, where, tmp_path, pki, **options) for name in where)
        await started(a, b, m)
        lies(m, ALTERED[what])
        sent = [await a.multicast(["a", "b", "c", "m"], b"true %d" % k) for k in range(3)]
        await until(lambda: b.quarantined())
        (one,) = b.quarantined()
        assert one.peer == "m" and one.number == 1
        assert "what 'a' is said to have sent was altered" in one.reason
        assert not b.delivered
        await c.start()
        for each in (b, c):
            got = [await anext(each) for _ in range(3)]
            assert [(m.name, m.payload) for m in got] == [(sent[k], b"true %d" % k) for k in range(3)]
        await crash(m)  # and mended: what is in its journal is what it had received
        m = signing("m", where, tmp_path, pki, **options)
        await m.start()
        await until(lambda: not b.quarantined() and b._engine.inboxes[3].received_through == 3)
        assert b.delivered == c.delivered == 3
        await closed(a, b, c, m)

    run(scenario())


@pytest.mark.parametrize("protocol", ["topological", "zoned-ks"])
def test_a_router_that_alters_is_refused_by_the_next_one_and_nothing_is_lost(tmp_path, protocol):
    """ana and gil have no link: it goes by rx, lx1, po and works. rx lies, and is mended."""

    async def scenario():
        where, pki = site_addresses(DEPARTMENTS), tmp_path / "pki"
        identity.make_authority(pki)
        for name in where:
            identity.issue(pki, name)

        def node(name):
            return Node(
                name,
                peers=where,
                listen=where[name],
                guard=MutualTls(
                    name, **dict(zip(("authority", "certificate", "key"), paths(pki, name), strict=True))
                ),
                topology=DEPARTMENTS,
                protocol=protocol,
                cluster=CLUSTER,
                journal=tmp_path / f"{name}.journal",
                signatures=signatures(name, pki),
                limits=Limits(**{**QUICK, "linger": 0.2}),
            )

        def lie(message):
            if protocol == "topological":
                return message._replace(payload=message.payload[:-1] + b"!")
            return message._replace(hop=message.hop._replace(payload=message.payload[:-1] + b"!"))

        nodes = {name: node(name) for name in where}
        await started(*nodes.values())
        lies(nodes["rx"], lie)
        await nodes["ana"].multicast(["gil"], b"hello")
        await until(lambda: nodes["lx1"].quarantined())
        (refused,) = nodes["lx1"].quarantined()
        assert refused.peer == "rx" and "'ana' is said to have sent was altered" in refused.reason
        assert not nodes["gil"].delivered and not nodes["po"].stats()["frames_received"]
        await crash(nodes["rx"])
        nodes["rx"] = node("rx")
        await nodes["rx"].start()
        message = await anext(nodes["gil"])
        assert (message.sender, message.payload) == ("ana", b"hello")
        await closed(*nodes.values())

    run(scenario())


def test_a_coordinator_that_alters_or_invents_is_refused(tmp_path, pki):
    options = {"protocol": "sequencer", "options": {"coordinator": "m"}}

    async def scenario():
        where = addresses("a", "b", "m")
        a, b, m = await started(*(signing(name, where, tmp_path, pki, **options) for name in where))
        lies(m, lambda message: message._replace(sender=1) if hasattr(message, "place") else message)
        name = await a.multicast(["a", "b"], b"mine")
        await until(lambda: b.quarantined() and a.quarantined())
        assert "'b' is said to have sent was altered" in b.quarantined()[0].reason
        await crash(m)
        m = signing("m", where, tmp_path, pki, **options)
        await m.start()
        assert await take(b, 1) == [name] == await take(a, 1)
        await closed(a, b, m)

    run(scenario())


def test_a_node_that_is_killed_sends_the_same_frames_again(tmp_path, pki):
    """Signing draws dice: the journal has what came of it."""

    async def scenario():
        where = addresses("a", "b")
        a = signing("a", where, tmp_path, pki)
        await a.start()
        for k in range(5):
            await a.multicast(["b"], b"%d" % k, ordered=k != 2)
        frames = list(a._engine.outboxes[1].unacknowledged)
        await crash(a)
        a, b = await started(*(signing(name, where, tmp_path, pki) for name in where))
        assert list(a._engine.outboxes[1].unacknowledged) == frames
        got = [await anext(b) for _ in range(5)]
        assert [each.payload for each in got] == [b"%d" % k for k in range(5)]
        await crash(b)
        b = signing("b", where, tmp_path, pki)
        await b.start()
        again = [await anext(b) for _ in range(5)]
        assert [each.payload for each in again] == [b"%d" % k for k in range(5)]
        await closed(a, b)

    run(scenario())


def test_a_newcomer_whose_certificate_comes_late(tmp_path, pki):
    """d joins with the state of a; b has no certificate of d at first, and takes its messages when it has."""

    async def scenario():
        where = addresses("a", "b", "d")
        founders, folder = ["a", "b"], tmp_path / "certificates of b"
        folder.mkdir()
        for name in founders:
            (folder / f"{name}.pem").write_bytes((pki / f"{name}.pem").read_bytes())
        peers = {name: where[name] for name in founders}
        more = {"codec": JSON, "members": founders, "state": lambda: ["state"]}
        a = signing("a", peers, tmp_path, pki, **more)
        b = signing("b", peers, tmp_path, pki, folder, **more)
        await started(a, b)
        await a.multicast(["b"], 1)
        assert await take(b, 1) == ["a:1"]
        members = await a.join("d", where["d"])
        more = {"codec": JSON, "members": members, "state_from": "a"}
        d = signing("d", {**peers, "d": where["d"]}, tmp_path, pki, **more)
        await d.start()
        state = await anext(d)
        assert state.is_state and state.value == ["state"]
        await state.ack()
        await until(lambda: "d" in b.members)
        await d.multicast(["a", "b"], "I am new")
        assert (await anext(a)).value == "I am new"
        await until(lambda: b.quarantined())
        assert (
            "Put its certificate there" in b.quarantined()[0].reason and "d.pem" in b.quarantined()[0].reason
        )
        (folder / "d.pem").write_bytes((pki / "d.pem").read_bytes())
        assert (await anext(b)).value == "I am new"
        await until(lambda: not b.quarantined())
        await closed(a, b, d)

    run(scenario())


def test_a_new_key_while_nodes_run(tmp_path, pki):
    """What a signed with the old one is still on its way to b when it has the new one."""

    async def scenario():
        where, own = addresses("a", "b"), tmp_path / "pki"
        shutil.copytree(pki, own)
        a, b = (signing(name, where, tmp_path, own) for name in where)
        await a.start()
        sent = [await a.multicast(["b"], b"old")]
        before = (own / "a.pem").read_bytes()
        for kind in ("pem", "key"):
            (own / f"a.{kind}").unlink()
        identity.issue(own, "a")
        with (own / "a.pem").open("ab") as file:
            file.write(before)
        a.reload_certificates()
        sent.append(await a.multicast(["b"], b"new"))
        await b.start()
        assert await take(b, 2) == sent
        (own / "a.key").chmod(0o604)
        with pytest.raises(IdentityError, match="is open to everyone"):
            a.reload_certificates()
        sent.append(await a.multicast(["b"], b"with the key that it had"))
        assert await take(b, 1) == sent[2:]
        await closed(a, b)

    run(scenario())


def test_trackers_stamps_headers_and_requests_work_as_ever(tmp_path, pki):
    async def scenario():
        where = addresses("a", "b", "c")
        more = {"headers": True, "tracker": "p3-reduced", "stamps": True, "codec": JSON}
        a, b, c = await started(*(signing(name, where, tmp_path, pki, **more) for name in where))

        async def answer():
            message = await anext(b)
            await message.reply(message.value + 1)

        answering = asyncio.create_task(answer())
        assert (await a.request("b", 41, timeout=30)).value == 42
        await answering
        await a.multicast(["b", "c"], {"x": 1}, headers={"k": "v"})
        one, other = await anext(b), await anext(c)
        assert one.headers["k"] == "v" and one.value == other.value == {"x": 1}
        await closed(a, b, c)

    run(scenario())


@pytest.mark.slow  # in `make test`, processes that sign are killed by tests/harness
@pytest.mark.parametrize("protocol", ["sequencer", "flooding"])
def test_processes_that_sign_are_killed_and_nothing_is_lost_repeated_or_misordered(tmp_path, seed, protocol):
    pki = tmp_path / "pki"
    identity.make_authority(pki)
    for name in NAMES:
        identity.issue(pki, name)
    with Cluster(tmp_path, seed, protocol=protocol, messages=30, pace=0.008, pki=str(pki)) as cluster:
        cluster.suffer(schedule(seed, 1.0, 0.3))
        assert cluster.kills >= 2
        cluster.wait(90)
    assert cluster.judge().num_rows > 150


# All nodes or none.


def test_a_node_without_signatures_is_refused_in_words(tmp_path, pki):
    async def scenario():
        where = addresses("a", "b")
        a, b = signing("a", where, tmp_path, pki), make("b", where, tmp_path, cluster=CLUSTER)
        await started(a, b)
        await a.multicast(["b"], b"x")
        await b.multicast(["a"], b"y")
        told = lambda node: " ".join(why for of in node._connections._troubles.values() for _, why in of)  # noqa: E731
        await until(lambda: "give all nodes `signatures`, or none" in told(a) + told(b))
        assert a.delivered == b.delivered == 0
        await closed(a, b)

    run(scenario())


def test_who_tells_no_signatures_makes_none():
    """Nor does a node that does not know the term; among themselves nothing changes."""
    none = Terms.from_json({"cluster": "x", "lowest": 1, "highest": 2})
    none.check_setup("b", Terms(cluster="x"))
    assert "signatures" not in Terms(cluster="x").to_json()
    ours = Terms(cluster="x", signatures="ecdsa-p256-1")
    assert Terms.from_json(ours.to_json()) == ours
    with pytest.raises(Exception, match="'b' signs messages by nothing, and this node by ecdsa-p256-1"):
        ours.check_setup("b", none)
    with pytest.raises(ValueError, match="names and digests"):
        Terms.from_json({"signatures": 7})


def test_a_journal_belongs_to_a_node_that_signs_or_to_one_that_does_not(tmp_path, pki):
    async def scenario():
        where = addresses("a", "b")
        a = signing("a", where, tmp_path, pki)
        await a.start()
        await a.close()
        with pytest.raises(JournalError, match="signatures"):
            await make("a", where, tmp_path, cluster=CLUSTER).start()

    run(scenario())


def test_what_cannot_be_signed_is_refused_at_once(tmp_path, pki):
    where = addresses("a", "b")
    with pytest.raises(
        LocalProtocolError, match=r"signatures need the name of the system, as in Node\(cluster"
    ):
        make("a", where, signatures=signatures("a", pki))
    with pytest.raises(LocalProtocolError, match="signatures of 'b' are given to 'a'"):
        make("a", where, cluster=CLUSTER, signatures=signatures("b", pki))


# Files.


def test_a_configuration_with_signatures(tmp_path, pki):
    text = f"""
name = "a"
cluster = "{CLUSTER}"
[peers]
b = "127.0.0.1:7002"
[security]
plaintext = "loopback"
[signatures]
key = "{pki}/a.key"
members = "{pki}"
authority = "{pki}/ca.pem"
"""
    file = tmp_path / "a.toml"
    file.write_text(text)
    node = make_node(load(file))
    assert node._signatures.me == "a"
    for wrong, why in (
        (text.replace("members =", "folder ="), "signatures.folder is no setting"),
        (text.replace(f'members = "{pki}"', ""), "signatures.members is missing"),
        (text.replace(f'members = "{pki}"', "members = 7"), "signatures.members is 7, not a path"),
    ):
        file.write_text(wrong)
        with pytest.raises(ConfigError, match=why):
            load(file)


def test_a_payload_fits_with_its_signature(tmp_path, pki):
    """What is confirmed can be sent: a frame that its receiver does not take would stay for ever."""

    async def scenario():
        where = addresses("a", "b")
        small = {"frame": 1024, "payload": 1024}
        a, b = await started(*(signing(name, where, tmp_path, pki, limits=small) for name in where))
        await until(lambda: a._running.members.smallest_limit == 1024)
        with pytest.raises(LocalProtocolError, match="too long for a peer that takes frames of 1024"):
            await a.multicast(["b"], bytes(1024 * 15 // 16 - HEAD + 1))
        await a.multicast(["b"], bytes(1024 * 15 // 16 - HEAD))
        assert await take(b, 1) == ["a:1"]
        await closed(a, b)

    run(scenario())
