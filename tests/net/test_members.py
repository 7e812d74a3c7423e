"""Names, indices and trust between peers, on real engines and without a transport."""

import pytest

from happened.core.errors import LocalProtocolError
from happened.net import Limits, PeerRefused
from happened.net.engine import Engine
from happened.net.membership import InitialMembers, Membership, Peer
from happened.net.transport import Hello
from happened.ordering import protocols

WHERE = {"a": "here:1", "b": "here:2", "c": "here:3"}


def initial(name="a", peers=WHERE, members=None, groups=None, limits=None):
    return InitialMembers(name, peers, members, groups, limits or Limits())


def start(name="a", **more):
    given = initial(name, **more)
    engine = Engine(name, given.members, "ks")
    return Membership(given, engine, "ks", b"life of " + name.encode()), engine


def settle(engine):
    engine.release(engine.cut())


def tell(sender, receiver, link):
    """Carry what is in an outbox, as a transport would."""
    settle(sender)
    outbox = sender.outboxes[link]
    for number, frame in outbox.after(outbox.acknowledged, 1 << 20):
        receiver.receive(sender.me, frame)
        sender.free(link, number)
    settle(receiver)


@pytest.mark.parametrize(
    "changed, why",
    [
        ({"name": "z", "members": ["a", "b", "c"]}, "must have 'z' and all its peers"),
        ({"members": ["a", "b"]}, "must have 'a' and all its peers"),
        ({"peers": {"b\n": "x"}}, "is no name of a process"),
        ({"name": ""}, "is no name of a process"),
        ({"limits": Limits(peers=1)}, "2 peers; the limit is 1"),
        ({"groups": {"b": ["a"]}}, "is a member and cannot be the name of a group"),
        ({"groups": {"team": []}}, "group 'team' has no members"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_is_opened(changed, why):
    with pytest.raises(LocalProtocolError, match=why):
        initial(**changed)


def test_members_are_all_names_sorted_unless_they_are_given():
    assert initial("b").members == ("a", "b", "c") and "b" not in initial("b").peers
    assert initial(members=["c", "b", "a", "d"]).members == ("c", "b", "a", "d")


@pytest.mark.parametrize(
    "protocol, options, numbered",
    [
        ("sequencer", {"coordinator": "c"}, {"coordinator": 2}),
        ("bss-groups", {"groups": [{"a"}, ("b", "c")]}, {"groups": [[0], [1, 2]]}),
    ],
)
def test_names_in_options_become_indices(protocol, options, numbered):
    facts = protocols()[protocol]
    assert facts.numbered(options, initial().index) == numbered
    with pytest.raises(LocalProtocolError, match="'c' is no member; members: a, b"):
        facts.numbered(options, initial(peers={"b": "here:2"}).index)


def test_destinations_are_members_and_groups_each_once_and_without_who_has_left():
    members, _ = start(groups={"team": ["b", "c"], "all": ["a", "b", "c"]})
    assert members.destinations("b") == (1,)
    assert members.destinations(["c", "team", "b"]) == (2, 1)
    assert members.destinations(["all"]) == (0, 1, 2)
    members.expel("b")
    assert members.destinations("team") == (2,)
    with pytest.raises(LocalProtocolError, match="no process named 'b'"):
        members.destinations("b")
    with pytest.raises(LocalProtocolError, match="no process named 'zoe'"):
        members.destinations(["c", "zoe"])


def test_who_joins_is_numbered_here_and_found_there():
    members, engine = start("a")
    others, other = start("b")
    assert members.join("d", "there:4") == ("a", "b", "c", "d")
    assert members.names[3] == "d" and members.index["d"] == 3
    tell(engine, other, 1)
    assert others.newly_admitted() == [Peer("d", "there:4", joined=True)]
    assert others.newly_admitted() == [] and others.index["d"] == 3
    for name, why in (("d", "is or was a member"), ("d\n", "is no name of a process")):
        with pytest.raises(LocalProtocolError, match=why):
            members.join(name, "there:5")
    with pytest.raises(LocalProtocolError, match="'a' admits new members"):
        others.join("e", "there:5")


def test_there_is_a_most_to_the_peers_that_are_present():
    members, engine = start("a", limits=Limits(peers=2))
    with pytest.raises(LocalProtocolError, match="there are 2 peers, which is the limit"):
        members.join("d", "there:4")
    members.expel("c")
    assert len(engine.present_links()) == 1
    _, other = start("b")
    tell(engine, other, 1)
    tell(other, engine, 0)
    assert members.join("d", "there:4") == ("a", "b", "c", "d")


def test_who_has_left_is_called_only_until_it_has_our_farewell():
    members, engine = start("a")
    _, other = start("b")
    assert members.peers() == [Peer("b", "here:2", joined=False), Peer("c", "here:3", joined=False)]
    members.join("d", "there:4")
    members.expel("b")
    assert [peer.name for peer in members.peers()] == ["b", "c", "d"] and not members.is_done_with(1)
    tell(engine, other, 1)
    assert members.is_done_with(1) and members.peers()[1:] == [Peer("d", "there:4", joined=True)]
    assert not members.is_done_with(2)  # c has all our frames, and has not left


def test_who_leaves_waits_for_the_farewell_of_everybody():
    members, engine = start("a")
    _, b = start("b")
    _, c = start("c")
    members.leave()
    for other, link in ((b, 1), (c, 2)):
        assert not members.everybody_said_farewell
        tell(engine, other, link)
        tell(other, engine, 0)
    assert members.everybody_said_farewell
    with pytest.raises(LocalProtocolError, match="has left the others"):
        engine.multicast([1], b"too late")


def test_who_leaves_waits_until_everybody_has_what_it_sent():
    """b tells c that a has left, before anything of a has come to c."""
    members, a = start("a")
    _, b = start("b")
    others, c = start("c")
    a.multicast([2], b"before")
    members.leave()
    tell(a, b, 1)
    tell(b, a, 0)
    tell(b, c, 2)
    assert 0 in c.gone and not c.unacknowledged
    tell(c, a, 0)
    assert (
        a.members.farewells == {1} and not members.everybody_said_farewell
    )  # c answers until it has all of a
    again = Engine("c", ["a", "b", "c"], "ks")
    c.release(c.cut())
    again.restore(c.snapshot())
    for engine in (c, again):
        assert engine.members.awaited == {0}
    assert not others.is_done_with(0) and "a" in [peer.name for peer in others.peers()]
    tell(a, c, 2)
    tell(c, a, 0)
    assert members.everybody_said_farewell and others.is_done_with(0)
    assert [each.payload for each in c.unacknowledged.values()] == [b"before"]


def test_who_is_admitted_while_another_leaves_has_its_farewell_too():
    _, a = start("a")
    _, b = start("b")
    b.leave("b")
    a.join("d", "there:4")
    tell(a, b, 1)
    d = Engine("d", ["a", "b", "c", "d"], "ks")
    tell(b, a, 0)
    tell(a, d, 3)
    assert d.members.awaited == {1}
    tell(b, d, 3)
    assert 1 in d.gone and not d.members.awaited


def hello(name="b", **changed):
    said = {"incarnation": b"life of b", "knows": b"", "protocol": "ks", "members": ("a", "b", "c")}
    return Hello(**{**said, **changed})


def test_a_peer_is_met_once_and_known_after():
    members, engine = start("a")
    assert members.hello("b") == Hello(b"life of a", b"", "ks", ("a", "b", "c"))
    assert members.check_hello("b", hello())
    engine.meet(1, b"life of b")
    assert not members.check_hello("b", hello(knows=b"life of a"))
    assert members.hello("b").knows == b"life of b"
    assert not members.check_hello("b", hello(members=("a", "b", "c", "d")))  # it knows of one more


@pytest.mark.parametrize(
    "peer, changed, why",
    [
        ("zoe", {}, "'zoe' is not a member here"),
        ("b", {"protocol": "bss"}, "'b' runs protocol 'bss' and 'a' 'ks'"),
        ("b", {"members": ("a", "c", "b")}, "they must be the same, in the same order"),
        ("b", {"incarnation": b"another"}, "'b' came back without its journal"),
        ("b", {"knows": b"another"}, "'b' knows 'a' with another journal"),
    ],
)
def test_a_peer_that_is_not_who_it_was_is_refused(peer, changed, why):
    members, engine = start("a")
    engine.meet(1, b"life of b")
    with pytest.raises(PeerRefused, match=why):
        members.check_hello(peer, hello(**changed))


def test_a_peer_that_has_less_than_before_has_lost_its_journal():
    members, engine = start("a")
    for _ in range(3):
        engine.multicast([1], b"x")
    settle(engine)
    engine.free(1, 2)
    with pytest.raises(
        PeerRefused, match="'b' had 2 frames of 'a' and now has 1: its journal is an old copy"
    ):
        members.check_resuming("b", 1)


def test_a_peer_that_has_more_than_we_knew_at_the_start_shows_that_our_journal_is_old():
    """What we have numbered since then could be under the same numbers: only the first time decides."""
    given = initial("a")
    engine = Engine("a", given.members, "ks")
    engine.multicast([1], b"x")
    settle(engine)
    members = Membership(given, engine, "ks", b"life of a")
    for _ in range(4):
        engine.multicast([1], b"x")
    settle(engine)
    with pytest.raises(
        PeerRefused, match="'b' has 3 frames of 'a', whose journal knows 1: it is an old copy"
    ):
        members.check_resuming("b", 3)
    members.check_resuming("b", 1)
    members.check_resuming("b", 3)  # a later connection: those it got from us
    members.check_acknowledged("b", 5)
    with pytest.raises(PeerRefused, match="'b' has 6 frames of 'a', whose journal knows 5"):
        members.check_acknowledged("b", 6)


def test_who_leaves_waits_for_nobody_to_take_what_it_has_passed_on_since():
    """b's message to a and c comes to a after c has parted with a; what a relays of it, c never takes."""
    given = {name: initial(name) for name in "abc"}
    engines = {name: Engine(name, each.members, "flooding") for name, each in given.items()}
    a, b, c = engines.values()
    members = Membership(given["a"], a, "flooding", b"life of a")
    b.multicast([0, 2], b"late")
    members.leave()
    tell(a, c, 2)
    tell(c, a, 0)
    assert a.members.farewells == {2}
    tell(b, a, 0)
    settle(a)
    again = Engine("a", given["a"].members, "flooding")
    again.restore(a.snapshot())
    for engine in (a, again):
        assert len(engine.outboxes[2]) == 1 and engine.members.has_parted(2)
        assert not engine.members.has_parted(1)
    tell(a, b, 1)
    tell(b, a, 0)
    assert members.everybody_said_farewell
