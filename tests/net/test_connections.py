"""Who is connected, and a log of troubles that stays bounded."""

import logging

from test_node import nodes, run, take, until

from happened.net.connections import CLOSED_IN_ORDER, LOGGED_REASONS, Connections


def test_each_direction_is_known_by_itself():
    connections = Connections("alice")
    connections.opened("bob", outgoing=True)
    connections.opened("bob", outgoing=False)
    connections.closed("bob", True, "", is_member=True)
    assert (connections.calling, connections.called) == (set(), {"bob"})
    assert connections.troubles_with("bob") == {}  # an end without a reason is no trouble


def test_a_trouble_is_logged_once_and_counted_always(caplog):
    connections = Connections("alice")
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            connections.closed("bob", True, "no answer", is_member=True)
        connections.closed("bob", True, "wrong key", is_member=True)
    assert connections.troubles_with("bob") == {"no answer": 3, "wrong key": 1}
    assert [(each.peer, each.reason) for each in caplog.records] == [
        ("bob", "no answer"),
        ("bob", "wrong key"),
    ]


def test_a_link_that_was_missed_is_welcomed_once(caplog):
    connections = Connections("alice")
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            connections.closed("bob", True, "no answer", is_member=True)
            connections.opened("bob", outgoing=True)
            connections.opened("carol", outgoing=True)
    assert [each.getMessage() for each in caplog.records] == [
        "alice: no link to bob: no answer",
        "alice: the link to bob is there now",
    ]


def test_strangers_share_a_bound_that_members_do_not(caplog):
    connections = Connections("alice")
    with caplog.at_level(logging.WARNING):
        for number in range(LOGGED_REASONS + 5):
            connections.closed(f"10.0.0.{number}", False, "no name", is_member=False)
        assert len(caplog.records) == LOGGED_REASONS
        connections.closed("10.0.0.0", False, "no name", is_member=False)
        connections.closed("bob", True, "no answer", is_member=True)
    assert len(caplog.records) == LOGGED_REASONS + 1 and connections.troubles_with("bob") == {"no answer": 1}


def test_a_link_that_ends_in_order_is_no_warning(caplog):
    connections = Connections("alice")
    with caplog.at_level(logging.INFO):
        connections.opened("bob", outgoing=True)
        connections.closed("bob", True, CLOSED_IN_ORDER, is_member=True)
        connections.closed("bob", True, CLOSED_IN_ORDER, is_member=True)  # at once after it was called
        connections.opened("carol", outgoing=True)
        connections.closed("carol", True, "no sign of life", is_member=True)
        connections.closed("dave", True, CLOSED_IN_ORDER, is_member=True)  # it never was up
    told = [(each.levelname, each.peer) for each in caplog.records if hasattr(each, "reason")]
    assert told == [("INFO", "bob"), ("WARNING", "carol"), ("WARNING", "dave")]
    assert connections.troubles_with("bob") == {CLOSED_IN_ORDER: 2}


def test_nodes_that_close_do_not_warn_of_their_links(caplog):
    async def scenario():
        async with nodes("alice", "bob", "carol") as (alice, bob, carol):
            await alice.multicast(["bob", "carol"], b"x")
            await take(bob, 1)
            await take(carol, 1)
            for node in (alice, bob, carol):  # a link that is closed before it was up is a trouble
                await until(
                    lambda node=node: all(
                        peer["calling"] and peer["called"] for peer in node.stats()["peers"].values()
                    )
                )
            caplog.clear()

    with caplog.at_level(logging.INFO, "happened.node"):
        run(scenario())
    closed = [each.levelname for each in caplog.records if getattr(each, "reason", "") == CLOSED_IN_ORDER]
    assert closed and {*closed} == {"INFO"}
