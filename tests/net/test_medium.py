"""Who may have a medium, and what links leave to it."""

import pytest
from keyed_stamps import CLUSTER, Stamps

from happened.core.errors import LocalProtocolError
from happened.net import MutualTls, Node, NodeError, Plaintext, SharedKey, UdpMulticast
from happened.net.config import ConfigError, load, make_node
from happened.net.identity import issue, make_authority, make_key, paths
from happened.net.link import Outbox
from happened.net.medium import Claims, Run, Unclaimed, runs
from happened.net.transport import Shared
from happened.ordering import protocols

GROUP = "239.255.77.1:7400"
KEY = bytes(range(32))


def node(**more):
    more = {"medium": UdpMulticast(GROUP), "guard": Plaintext(), **more}
    return Node("alice", peers={"bob": "127.0.0.1:1"}, **more)


# What a link leaves out.


def outbox(frames):
    box = Outbox()
    for number in range(frames):
        box.release(box.put(b"%d" % number))
    return box


def test_a_link_carries_what_is_before_the_first_claim():
    box, claims = outbox(6), Claims()
    view = Unclaimed(box, claims)
    assert [number for number, _ in view.after(0, 100)] == [1, 2, 3, 4, 5, 6]
    claims.claim(3, 1.0)
    claims.claim(5, 2.0)
    assert (view.released, [number for number, _ in view.after(0, 100)]) == (2, [1, 2])
    assert view.after(2, 100) == []
    assert claims.expire(1.5) == 1
    assert [number for number, _ in view.after(2, 100)] == [3, 4]
    box.acknowledge(5)
    claims.settle(5)
    assert not claims and view.acknowledged == 5
    assert [number for number, _ in view.after(2, 100)] == [6]


def test_runs_are_of_frames_that_are_consecutive_for_the_same_peers():
    shared = [
        Shared(b"a", {"bob": 1, "carol": 7}),
        Shared(b"b", {"bob": 2, "carol": 8}),
        Shared(b"c", {"bob": 3}),
        Shared(b"d", {"bob": 4, "carol": 9}),
        Shared(b"e", {"bob": 6, "carol": 10}),
    ]
    assert list(runs(shared, lambda peers: 100)) == [
        Run({"bob": 1, "carol": 7}, [b"a", b"b"]),
        Run({"bob": 3}, [b"c"]),
        Run({"bob": 4, "carol": 9}, [b"d"]),
        Run({"bob": 6, "carol": 10}, [b"e"]),
    ]
    assert len(list(runs(shared, lambda peers: 1))) == 5


# Who may have one.


def test_a_medium_turns_on_the_form_that_it_needs():
    assert node()._options == {"hardware_multicast": True}
    assert node(protocol="bss")._options == {}
    with pytest.raises(LocalProtocolError, match="needs option hardware_multicast"):
        node(options={"hardware_multicast": False})


@pytest.mark.parametrize(
    "name", [name for name, facts in protocols().items() if not facts.copies.common_frame]
)
def test_protocols_whose_copies_differ_are_refused(name):
    with pytest.raises(LocalProtocolError, match="a message of its own"):
        node(protocol=name)


def test_a_udp_medium_stands_beside_tcp_only():
    with pytest.raises(LocalProtocolError, match="beside TCP"):
        node(transport=object())


def test_datagrams_are_no_less_authentic_than_links(tmp_path):
    make_authority(tmp_path)
    issue(tmp_path, "alice")
    authority, certificate, key = paths(tmp_path, "alice")
    tls = MutualTls("alice", authority=authority, certificate=certificate, key=key)
    with pytest.raises(NodeError, match="key of the group"):
        node(guard=tls)
    make_key(tmp_path / "group.key")
    node(guard=tls, medium=UdpMulticast(GROUP, key=tmp_path / "group.key"))
    node(guard=tls, cluster=CLUSTER, signatures=Stamps("alice"))
    with pytest.raises(NodeError, match="without authentication"):
        node(guard=Plaintext(anywhere=True), medium=UdpMulticast(GROUP, interface="10.0.0.1"))
    node(guard=SharedKey(KEY), medium=UdpMulticast(GROUP, interface="10.0.0.1"))


@pytest.mark.parametrize(
    "wrong",
    [
        {"group": "127.0.0.1:7400"},
        {"group": "239.255.7.1:0"},
        {"group": "239.255.7.1"},
        {"group": "[ff02::1]:7400"},
        {"group": GROUP, "interface": "eth0"},
        {"group": GROUP, "datagram": 70_000},
        {"group": GROUP, "repair": 0},
        {"group": GROUP, "ttl": 256},
    ],
)
def test_bad_arguments_are_refused(wrong):
    with pytest.raises(NodeError):
        UdpMulticast(**wrong)


def test_a_group_on_an_interface_that_is_not_there_is_refused():
    with pytest.raises(NodeError, match="cannot take part"):
        UdpMulticast(GROUP, interface="192.0.2.1").open()


# From a file.


def write(folder, text):
    config = folder / "alice.toml"
    config.write_text(
        f'name = "alice"\n[peers]\nbob = "127.0.0.1:1"\n[security]\nplaintext = "loopback"\n{text}'
    )
    return config


def test_a_medium_from_a_file(tmp_path):
    make_key(tmp_path / "lab.key")
    made = make_node(load(write(tmp_path, f'[medium]\ngroup = "{GROUP}"\nkey = "lab.key"\nrepair = 1\n')))
    medium = made.transport._medium
    assert (medium.group, medium.repair, len(medium.key)) == (("239.255.77.1", 7400), 1, 32)
    assert made._options == {"hardware_multicast": True}


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[medium]\n", "medium.group is missing"),
        (f'[medium]\ngroup = "{GROUP}"\nbeats = 1\n', "medium.beats is no setting"),
        (f'[medium]\ngroup = "{GROUP}"\nttl = "1"\n', "medium.ttl is '1', not a whole number"),
        ("[nats]\nbroadcast = 1\n", "nats.broadcast is 1, not true or false"),
    ],
)
def test_a_wrong_file_is_told_where(tmp_path, text, says):
    with pytest.raises(ConfigError, match=says):
        load(write(tmp_path, text))


def test_nats_with_broadcast_from_a_file(tmp_path):
    made = make_node(load(write(tmp_path, "[nats]\nbroadcast = true\n")))
    assert type(made.transport).__name__ == "NatsBroadcast"
    assert made._options == {"hardware_multicast": True}
    assert make_node(load(write(tmp_path, "[nats]\nbroadcast = false\n")))._options == {}
