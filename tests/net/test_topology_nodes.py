"""Nodes that stand in a topology: who calls whom, what may come over which link, and which files are refused.

Links are real sockets on loopback; what a link carries is checked by the engine, without one.
"""

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from netcluster import free_ports

from happened.core.errors import CausalityError, LocalProtocolError, RemoteProtocolError
from happened.core.places import Branch, Place, onward_by_link
from happened.net import Limits, Node, Plaintext
from happened.net.engine import Engine
from happened.net.errors import JournalError, NodeError, NodeFull
from happened.net.limits import Flow
from happened.net.site import proposal, read_site, site_of
from happened.ordering import Relays, protocols
from happened.topology import TopologyError, derive, load, to_document

EXAMPLES = Path(__file__).parents[2] / "examples" / "topologies"
LINE, DEPARTMENTS = EXAMPLES / "line.yaml", EXAMPLES / "departments.yaml"
ROUTING = sorted(name for name, facts in protocols().items() if facts.copies.relays is Relays.ROUTERS)
QUICK = Limits(first_retry=0.02, last_retry=0.2, linger=0.5)


def addresses(file):
    names = tuple(load(file).graph)
    return {name: f"127.0.0.1:{port}" for name, port in zip(names, free_ports(len(names)), strict=True)}


def node(name, where, file, protocol="topological", **more):
    settings = {"listen": where[name], "protocol": protocol, "guard": Plaintext(), "limits": QUICK} | more
    return Node(name, peers=where, topology=file, **settings)


async def until(holds, seconds=5.0):
    async with asyncio.timeout(seconds):
        while not holds():
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("protocol", ROUTING)
def test_a_message_crosses_routers_that_have_no_application(protocol):
    """ana and gil have no link: it goes by rx, lx1, po and works."""

    async def main():
        where = addresses(DEPARTMENTS)
        nodes = {name: node(name, where, DEPARTMENTS, protocol) for name in where}
        async with asyncio.TaskGroup() as group:
            for each in nodes.values():
                group.create_task(each.start())
        try:
            await nodes["ana"].multicast("plan", b"hello")  # a group of the file
            async with asyncio.timeout(10):
                for name in ("ana", "eva", "gil"):
                    message = await anext(nodes[name])
                    assert (message.name, message.payload) == ("ana:1", b"hello")
            linked = load(DEPARTMENTS).graph
            for name, each in nodes.items():
                peers = each.stats()["peers"].items()
                assert {peer for peer, told in peers if told["calling"] or told["called"]} <= set(
                    linked[name]
                )
                assert {peer for peer, told in peers if told["sent"]} <= set(linked[name])
            assert nodes["lx1"].stats()["frames_received"] == 1 and nodes["lx1"].delivered == 0
        finally:
            await asyncio.gather(*(each.close() for each in nodes.values()))

    asyncio.run(main())


def test_connections_are_made_along_links_only():
    async def main():
        where = addresses(LINE)
        nodes = {name: node(name, where, LINE) for name in where}
        for each in nodes.values():
            await each.start()
        try:
            linked = {"a": {"b"}, "b": {"a", "c"}, "c": {"b", "d"}, "d": {"c"}}

            def calling(name):
                peers = nodes[name].stats()["peers"].items()
                return {peer for peer, told in peers if told["calling"]}

            await until(lambda: all(calling(name) == linked[name] for name in linked))
        finally:
            await asyncio.gather(*(each.close() for each in nodes.values()))

    asyncio.run(main())


def reasons(caplog):
    """Why connections have ended, as logged."""
    return " ".join(getattr(record, "reason", "") for record in caplog.records)


def test_a_sender_waits_for_a_destination_far_away_that_is_down():
    """While d is away the outboxes of c and b fill, they stop reading, and a has no more room. Then d comes,
    and gets everything in order."""
    bounds = {"outbox": 4000, "payload": 500, "frame": 2000, "first_retry": 0.02, "last_retry": 0.2}
    limits = Limits(**bounds, linger=0.5)

    async def main():
        where = addresses(LINE)
        nodes = {name: node(name, where, LINE, limits=limits) for name in where}
        for name in "abc":
            await nodes[name].start()
        a, sent = nodes["a"], 0
        try:
            with pytest.raises(TimeoutError):
                while sent < 2000:
                    async with asyncio.timeout(1.5):
                        await a.multicast("d", b"%d" % sent + bytes(400))
                    sent += 1
            most = 2 * limits.outbox + limits.frame
            held = {name: nodes[name].stats()["peers"] for name in "abc"}
            assert held["c"]["d"]["outbox_bytes"] > most and held["c"]["b"]["paused"]
            assert held["b"]["c"]["outbox_bytes"] > most and held["b"]["a"]["paused"]
            assert not held["b"]["c"]["paused"]  # what c itself sends would still come through
            await nodes["d"].start()
            async with asyncio.timeout(10):
                got = [int((await anext(nodes["d"])).payload.rstrip(bytes(1))) for _ in range(sent)]
            assert got == list(range(sent)) and sent > 20
        finally:
            await asyncio.gather(*(each.close() for each in nodes.values()))

    asyncio.run(main())


# What comes over a link.


def engines(file, protocol):
    names, places = (routes := derive(load(file))).names, routes.places
    return [
        Engine(name, names, protocol, {"place": place}) for name, place in zip(names, places, strict=True)
    ]


def frames(engine, to):
    engine.release(engine.cut())
    return list(engine.outboxes[to].unacknowledged)


@pytest.mark.parametrize("protocol", ROUTING)
def test_a_message_is_taken_from_the_end_of_a_link_that_its_route_uses(protocol):
    (a, b, c, d) = engines(LINE, protocol)
    a.multicast((3,), b"x")
    for sender, receiver in ((a, b), (b, c), (c, d)):
        (frame,) = frames(sender, receiver.me)
        receiver.receive(sender.me, frame)
    assert [delivery.payload for delivery in d.cut().deliveries] == [b"x"]


@pytest.mark.parametrize("protocol", ROUTING)
def test_a_message_over_another_link_is_refused_and_changes_nothing(protocol):
    """c is linked with b and d; what a sends comes to c by b. d can neither say that it comes by d, nor that
    it comes by b."""
    (a, b, c, _) = engines(LINE, protocol)
    a.multicast((2,), b"x")
    (hop,) = frames(a, 1)
    b.receive(0, hop)
    (second,) = frames(b, 2)
    before = c.snapshot()
    with pytest.raises(RemoteProtocolError, match="a message of process 1 comes from process 3"):
        c.receive(3, second)
    with pytest.raises(RemoteProtocolError, match="which its route does not use"):
        c.receive(3, relayed_by_d(protocol))
    assert c.snapshot() == before
    c.receive(1, second)
    assert c.delivered == 1


def relayed_by_d(protocol):
    """The frame that d sends to c when it makes others believe that a is its neighbour."""
    names = ("a", "b", "c", "d")
    a = Engine("a", names, protocol, {"place": Place(0b1000, (Branch(3, 0b1110),))})
    d = Engine("d", names, protocol, {"place": Place(0b0101, (Branch(0, 0b0001), Branch(2, 0b0110, 1)))})
    a.multicast((2,), b"x")
    (frame,) = frames(a, 3)
    d.receive(0, frame)
    (frame,) = frames(d, 2)
    return frame


def test_every_hop_of_every_route_passes_the_check():
    """Witnesses hear from their forwarder and its neighbours: everybody to everybody, each example."""
    for file in sorted(EXAMPLES.glob("*.yaml")):
        nodes = engines(file, "topological")
        n = len(nodes)
        for each in nodes:
            each.multicast(tuple(i for i in range(n) if i != each.me), b"x")
        moved = True
        while moved:
            moved = False
            for each in nodes:
                each.release(each.cut())
                for to, outbox in each.outboxes.items():
                    for frame in list(outbox.unacknowledged):
                        nodes[to].receive(each.me, frame)
                        moved = True
                    each.free(to, outbox.last)
        assert [each.delivered for each in nodes] == [n - 1] * n, file


def test_a_router_reads_no_more_for_a_peer_that_is_far_behind():
    """b's peer c is away: what a sends goes there, what c itself sends does not."""
    onward = onward_by_link(derive(load(LINE)).places[1])
    flow = Flow(Limits(outbox=1000, frame=100, payload=10), relays=False, onward=onward)
    assert flow.routes_to_pause({0: 0, 2: 2100}) == set()
    assert flow.routes_to_pause({0: 0, 2: 2101}) == {0}
    assert flow.routes_to_pause({0: 2101, 2: 2101}) == {0, 2}


def test_members_of_a_broadcast_network_do_not_wait_for_one_another():
    routes = derive(load(DEPARTMENTS))
    rx = routes.names.index("rx")
    onward = onward_by_link(routes.places[rx])
    ana, bruno, lx1, lx2 = map(routes.names.index, ("ana", "bruno", "lx1", "lx2"))
    assert not onward[ana] >> bruno & 1
    assert onward[ana] == 1 << lx1 | 1 << lx2 and onward[lx1] >> ana & 1


# Files.


def test_a_digest_does_not_depend_on_the_order_of_sets_in_one_process():
    script = (
        "import sys; from pathlib import Path; from happened.net.site import read_site;"
        "from happened.ordering import protocols;"
        "print([read_site(Path(f), n, protocols()['topological']).digest"
        " for f, n in zip(sys.argv[1::2], sys.argv[2::2])])"
    )
    asked = [x for f in sorted(EXAMPLES.glob("*.yaml")) for x in (str(f), next(iter(load(f).graph)))]
    told = {
        subprocess.run(
            [sys.executable, "-c", script, *asked],
            env=os.environ | {"PYTHONHASHSEED": str(seed)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in range(3)
    }
    assert len(told) == 1


def test_a_peer_with_another_file_is_refused(tmp_path, caplog):
    other = tmp_path / "other.yaml"
    other.write_text(LINE.read_text().replace("[c, d]", "[b, d]"))

    async def main():
        where = addresses(LINE)
        async with node("a", where, LINE) as a, node("b", where, other) as b:
            await until(lambda: "topology" in reasons(caplog))
            await a.multicast("b", b"x")
            await asyncio.sleep(0.1)
            assert not b.delivered and not b.stats()["frames_received"]

    asyncio.run(main())
    mine, theirs = (read_site(f, "a", protocols()["topological"]).digest for f in (LINE, other))
    text = reasons(caplog)
    assert mine != theirs and f"topology {mine[:12]}…" in text and f"topology {theirs[:12]}…" in text
    assert "give every process the same topology file" in text


def test_a_peer_without_a_file_is_refused(caplog):
    async def main():
        where = addresses(LINE)
        b = Node("b", peers=where, listen=where["b"], protocol="topological", guard=Plaintext(), limits=QUICK)
        async with node("a", where, LINE), b:
            await until(lambda: "no topology" in reasons(caplog))

    asyncio.run(main())


def test_a_journal_of_another_topology_is_not_used(tmp_path):
    other = tmp_path / "other.yaml"
    other.write_text(LINE.read_text().replace("[c, d]", "[b, d]"))
    where = addresses(LINE)

    async def once(file):
        async with node("a", where, file, journal=tmp_path / "a.journal"):
            pass

    asyncio.run(once(LINE))
    asyncio.run(once(LINE))
    with pytest.raises(JournalError, match=r"whose options is .*topology"):
        asyncio.run(once(other))


WHERE = {name: f"127.0.0.1:{7001 + i}" for i, name in enumerate("abcd")}


@pytest.mark.parametrize(
    ("text", "changed", "said"),
    [
        (None, {"name": "z"}, "has no process called 'z'; there are: a, b, c, d"),
        (
            None,
            {"peers": WHERE | {"z": "127.0.0.1:1"}},
            "has no process called 'z', which is among the peers",
        ),
        (None, {"name": "b", "peers": {"a": "127.0.0.1:1"}}, "links 'b' with c: say where they are"),
        (None, {"members": ["a", "b"]}, "leave `members` out"),
        (None, {"protocol": "ks"}, "ks sends to every destination directly"),
        ("separators: [[a]]", {}, "is no separator"),
        ("separators: [[z]]", {}, "unknown here"),
        ("groups: {g: [z]}", {}, "unknown here"),
    ],
)
def test_a_file_that_does_not_fit_is_refused_before_anything_starts(tmp_path, text, changed, said):
    file = tmp_path / "site.yaml"
    file.write_text(LINE.read_text() + (text or "") + "\n")
    settings = {"name": "a", "peers": WHERE, "protocol": "topological", "guard": Plaintext()} | changed
    with pytest.raises(CausalityError, match=said) as refused:
        Node(settings.pop("name"), topology=file, **settings)
    assert "site.yaml" in str(refused.value)


def test_a_file_that_is_none_is_refused(tmp_path):
    with pytest.raises(TopologyError, match="cannot be read"):
        Node("a", peers=WHERE, topology=tmp_path / "no.yaml", protocol="topological", guard=Plaintext())


def test_routers_neither_send_nor_are_sent_to_and_members_stay(tmp_path):
    async def main():
        where = addresses(DEPARTMENTS)
        async with node("lx1", where, DEPARTMENTS) as router, node("ana", where, DEPARTMENTS) as ana:
            with pytest.raises(LocalProtocolError, match="'lx1' is a router in "):
                await router.multicast("ana", b"x")
            with pytest.raises(LocalProtocolError, match="lx1 only forwards"):
                await ana.multicast(["eva", "lx1"], b"x")
            assert ana.sent == 0
            for change in (ana.join("zoe", "127.0.0.1:9"), ana.leave(), ana.expel("eva")):
                with pytest.raises(LocalProtocolError, match="members follow from"):
                    await change

    asyncio.run(main())


# Another topology while the system runs.

NEXT = """\
processes: [a, b, d, e]
links: [[a, b], [b, d], [d, e], [a, e]]
"""


@pytest.mark.parametrize("protocol", ROUTING)
def test_processes_and_links_come_and_go_while_messages_pass(protocol, tmp_path):
    """c goes, e comes, b and d get a link. Whoever is started again with the file it had goes on in the new
    topology, which its journal knows."""
    (tmp_path / "next.yaml").write_text(NEXT)
    (tmp_path / "back.yaml").write_text("processes: [a, b, d]\nlinks: [[a, b], [b, d]]\n")

    async def main():
        where = addresses(LINE)
        where["e"] = f"127.0.0.1:{free_ports(1)[0]}"

        def started(name, file=LINE, **more):
            peers = {each: where[each] for each in load(file).graph}
            return node(name, peers, file, protocol, journal=tmp_path / f"{name}.journal", **more)

        nodes = {name: started(name) for name in "abcd"}
        for each in nodes.values():
            await each.start()
        try:
            early = [await nodes["a"].multicast([*"cd"], b"%d" % i) for i in range(20)]
            late = asyncio.gather(*(nodes["d"].multicast([*"ab"], b"late") for _ in range(5)))
            with pytest.raises(LocalProtocolError, match="new links of a, e: say where"):
                await nodes["c"].change_topology(tmp_path / "next.yaml", {})
            members = await nodes["a"].change_topology(tmp_path / "next.yaml", where)
            assert members == ("a", "b", "c", "d", "e") and nodes["a"].members == ("a", "b", "d", "e")
            nodes["e"] = started("e", tmp_path / "next.yaml", members=members)
            await nodes["e"].start()
            await late
            after = await nodes["a"].multicast([*"de"], b"after")
            async with asyncio.timeout(20):
                assert [(await anext(nodes["d"])).name for _ in range(21)] == [*early, after]
                assert [(await anext(nodes["c"])).name for _ in range(20)] == early
                assert (await anext(nodes["e"])).name == after
            with pytest.raises(LocalProtocolError, match="has left"):
                await nodes["c"].multicast("a", b"")
            await until(lambda: nodes["b"].site.links == ("a", "d"))
            await nodes["b"].close()
            nodes["b"] = started("b")
            await nodes["b"].start()
            assert nodes["b"].members == ("a", "b", "d", "e")
            assert await nodes["b"].multicast("e", b"restarted")
            async with asyncio.timeout(20):
                assert (await anext(nodes["e"])).payload == b"restarted"
            await nodes["d"].change_topology(tmp_path / "back.yaml")
            await until(lambda: all(nodes[name].members == ("a", "b", "d") for name in "abd"))
            with pytest.raises(LocalProtocolError, match="'c' has left"):
                await nodes["d"].change_topology(LINE, where)
        finally:
            await asyncio.gather(*(each.close() for each in nodes.values()))

    asyncio.run(main())


def test_a_change_that_somebody_is_away_for_names_whom_it_waits_for(tmp_path):
    (tmp_path / "next.yaml").write_text("processes: [a, b, c]\nlinks: [[a, b], [b, c]]\n")

    async def main():
        where = addresses(LINE)
        nodes = {name: node(name, where, LINE, journal=tmp_path / name) for name in where}
        for name in "abc":
            await nodes[name].start()
        try:
            with pytest.raises(NodeError, match=r"d did not finish the change in time|c, d did not"):
                await nodes["a"].change_topology(tmp_path / "next.yaml", timeout=0.5)
            with pytest.raises(NodeFull):
                nodes["a"].multicast_nowait("b", b"not now")
            await nodes["d"].start()
            assert await nodes["a"].multicast("c", b"waited")
            assert nodes["a"].members == ("a", "b", "c")
        finally:
            await asyncio.gather(*(each.close() for each in nodes.values()))

    asyncio.run(main())


@pytest.mark.parametrize("file", sorted(EXAMPLES.glob("*.yaml")), ids=lambda file: file.stem)
def test_who_starts_with_the_file_of_a_change_stands_where_the_others_went(file, tmp_path):
    """Whatever the order of its zones: the digest of a topology is over what the file says, in its order."""
    document, facts = to_document(load(file)), protocols()["topological"]

    def beside(found):
        """Add the newcomer beside the first process there is; returns that."""
        found["zones"] = dict(reversed(found.get("zones", {}).items()))
        if found.get("processes"):
            found["processes"] = [*found["processes"], "newcomer"]
            return found["processes"][0]
        return beside(next(iter(found["zones"].values())))

    present = read_site(file, next(iter(load(file).graph)), facts)
    near = beside(document)
    document["links"] = [*document["links"], [near, "newcomer"]]
    following = tmp_path / "following.yaml"
    following.write_text(yaml.safe_dump(document, sort_keys=False))
    text = proposal(following, present, {near: "here:1", "newcomer": "here:2"}, [present.base])
    went = site_of(text, near)
    assert read_site(following, "newcomer", facts, went.members).digest == went.digest


def test_a_new_process_succeeds_a_router_that_was_all_that_connected(tmp_path):
    """a - b - c, b is lost for good; a and c are alone in their parts, and go on with d in its place."""
    file, later = tmp_path / "line.yaml", tmp_path / "later.yaml"
    file.write_text("processes: [a, c]\nrouters: [b]\nlinks: [[a, b], [b, c]]\n")
    later.write_text("processes: [a, c]\nrouters: [d]\nlinks: [[a, d], [d, c]]\n")

    async def main():
        where = addresses(file)
        (port,) = free_ports(1)
        heir = {"d": f"127.0.0.1:{port}"}
        a, b, c = (node(name, where, file, journal=tmp_path / name) for name in "abc")
        for each in (a, b, c):
            await each.start()
        await a.multicast(["c"], b"1")
        assert (await asyncio.wait_for(anext(c), 10)).name == "a:1"
        await b.close()
        ends = where | heir
        members = await asyncio.gather(
            *(each.succeed("b", "d", how="collection", addresses=ends) for each in (a, c))
        )
        assert members[0] == members[1] == (*load(file).graph, "d")
        peers = {name: address for name, address in ends.items() if name != "b"}
        d = Node(
            "d", peers=peers, topology=later, members=members[0], listen=heir["d"], protocol="topological",
            guard=Plaintext(), limits=QUICK, journal=tmp_path / "d",
        )  # fmt: skip
        await d.start()
        await a.multicast(["c"], b"2")
        assert (await asyncio.wait_for(anext(c), 10)).payload == b"2"
        await asyncio.gather(*(each.close() for each in (a, c, d)))

    asyncio.run(asyncio.wait_for(main(), 60))


@pytest.mark.parametrize("protocol", ROUTING)
@pytest.mark.parametrize("file", [None, LINE], ids=["everybody a neighbour", "line"])
def test_a_peer_that_is_away_stops_what_goes_its_way_and_nothing_else(protocol, file):
    """c is never there; a sends to it and d by b where there are routes, and b to a directly."""

    async def main():
        where = addresses(LINE)
        limits = Limits(outbox=20_000, first_retry=0.02, last_retry=0.2, linger=0.5)
        nodes = [node(name, where, file, protocol, limits=limits) for name in "ab"]
        a, b = nodes
        await asyncio.gather(a.start(), b.start())
        try:
            with pytest.raises(NodeFull, match="not acknowledged by c"):
                for _ in range(1000):
                    b.multicast_nowait("c", bytes(1000))
            if file is not None:
                with pytest.raises(NodeFull, match="not acknowledged by c"):
                    b.multicast_nowait("d", b"by c")
            for k in range(100):
                await b.multicast("a", bytes([k]), timeout=5)
            async with asyncio.timeout(10):
                assert [(await anext(a)).payload for _ in range(100)] == [bytes([k]) for k in range(100)]
            with pytest.raises(NodeFull, match="not acknowledged by c"):
                b.multicast_nowait(["a", "c"], b"to both")
        finally:
            await asyncio.gather(*(each.close() for each in nodes))

    asyncio.run(main())
