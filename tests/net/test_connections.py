"""Who is connected, and a log of troubles that stays bounded."""

import logging

from happened.net.connections import LOGGED_REASONS, Connections


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


def test_strangers_share_a_bound_that_members_do_not(caplog):
    connections = Connections("alice")
    with caplog.at_level(logging.WARNING):
        for number in range(LOGGED_REASONS + 5):
            connections.closed(f"10.0.0.{number}", False, "no name", is_member=False)
        assert len(caplog.records) == LOGGED_REASONS
        connections.closed("10.0.0.0", False, "no name", is_member=False)
        connections.closed("bob", True, "no answer", is_member=True)
    assert len(caplog.records) == LOGGED_REASONS + 1 and connections.troubles_with("bob") == {"no answer": 1}
