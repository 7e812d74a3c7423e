"""The public face: names, bytes, timestamps that compare."""

import json
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from happened.core.clocks import Causality
from happened.core.errors import LocalProtocolError, RemoteProtocolError
from happened.tracking import Stamp, Tracker, protocols, reconstruct

MEMBERS = ("alice", "bob", "carol")


def trio(protocol, **options):
    return [Tracker(name, MEMBERS, protocol=protocol, **options) for name in MEMBERS]


def story(protocol, **options):
    """Alice's event reaches Bob, who has one; Carol has one of her own, and then hears of Bob's."""
    alice, bob, carol = trio(protocol, **options)
    first = alice.relevant()
    bob.receive("alice", alice.send("bob"))
    second = bob.relevant()
    apart = carol.relevant()
    carol.receive("bob", bob.send("carol"))
    return first, second, apart, carol.relevant()


@pytest.mark.parametrize("name", [name for name, facts in protocols().items() if "vector" in facts.tells])
def test_timestamps_compare(name):
    first, second, apart, last = story(name)
    assert first.before(second) and second.after(first) and not first.concurrent(second)
    assert apart.concurrent(first) and apart.concurrent(second) and apart.before(last)
    assert first.before(last) and last.compare(last) is Causality.EQUAL
    assert last.vector == {"alice": 1, "bob": 1, "carol": 2}


def test_timestamps_print_well():
    *_, last = story("p3-reduced")
    assert str(last) == "carol:2 {alice: 1, bob: 1, carol: 2} after bob:1, carol:1"
    assert str(story("lamport")[1]) == "bob:1 @2"
    assert str(story("p2")[1]) == "bob:1 [alice: 1, bob: 1]"


@pytest.mark.parametrize("name", protocols())
def test_timestamps_survive_json_and_bytes(name):
    for stamp in story(name):
        assert Stamp.from_json(json.loads(json.dumps(stamp.to_json()))) == stamp
        assert Stamp.from_bytes(stamp.to_bytes()) == stamp
        assert hash(Stamp.from_bytes(stamp.to_bytes())) == hash(stamp)


@pytest.mark.parametrize("name", ["lamport", "p2", "direct", "incremental"])
def test_what_cannot_be_compared_says_so(name):
    first, second, *_ = story(name)
    with pytest.raises(LocalProtocolError, match="no vector"):
        first.before(second)
    assert first.compare(first) is Causality.EQUAL


@pytest.mark.parametrize("name", ["p2", "direct", "incremental"])
def test_dependencies_compare_once_vectors_are_reconstructed(name):
    first, second, apart, last = reconstruct(story(name))
    assert first.before(second) and second.before(last) and apart.concurrent(second)
    assert last.vector == {"alice": 1, "bob": 1, "carol": 2}


def test_null_events_are_told_once():
    alice, bob, carol = trio("p2", b=1)
    alice.relevant()
    carol.receive("alice", alice.send("carol"))
    carol.receive("bob", bob.send("carol"))
    bob.relevant()
    carol.receive("bob", bob.send("carol"))
    carol.relevant()
    bob.receive("carol", carol.send("bob"))
    bob.receive("alice", alice.send("bob"))
    assert bob.null_events() == []
    bob.send("alice")
    (null,) = bob.null_events()
    assert null.null and (null.process, null.seq) == ("bob", 2) and str(null).endswith("(null)")
    assert bob.null_events() == []


def test_a_tracker_restores():
    alice, bob, _ = trio("p1")
    alice.relevant()
    bob.receive("alice", alice.send("bob"))
    twin = Tracker("bob", MEMBERS)
    twin.restore(bob.snapshot())
    assert twin.relevant() == bob.relevant()


def test_strangers_are_named():
    with pytest.raises(LocalProtocolError, match="no process named 'dave'"):
        Tracker("dave", MEMBERS)
    alice = Tracker("alice", MEMBERS)
    with pytest.raises(LocalProtocolError, match="no process named 'dave'"):
        alice.send("dave")
    with pytest.raises(RemoteProtocolError):
        alice.receive("bob", b"\xff" * 40)


@given(st.binary(max_size=40))
def test_arbitrary_bytes_are_no_timestamp(data):
    with pytest.raises(RemoteProtocolError, match="not a timestamp"):
        Stamp.from_bytes(data)


@pytest.mark.long
@given(
    st.recursive(st.none() | st.integers() | st.text(max_size=3), lambda inner: st.lists(inner, max_size=2))
)
def test_a_timestamp_with_a_senseless_field_is_refused(value):
    genuine = story("p3")[3].to_json()
    for field in ("process", "seq", "vector", "predecessors"):
        try:
            stamp = Stamp.from_json(genuine | {field: value})
        except RemoteProtocolError:
            continue
        assert Stamp.from_json(stamp.to_json()) == stamp


def test_the_example_of_the_docs_prints_what_it_says(capsys):
    text = (Path(__file__).resolve().parents[2] / "docs" / "tracking.md").read_text()
    example = re.search(r"```python\n(.*?)```", text, re.DOTALL).group(1)
    exec(compile(example, "docs/tracking.md", "exec"), {})
    said = re.findall(r"^print\(.*\) +# (.*)$", example, re.MULTILINE)
    assert len(said) == 2 and capsys.readouterr().out.splitlines() == said
