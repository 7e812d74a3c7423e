"""A member that lies: what the others refuse, and what it can still do, line by line of docs/runtime.md.

m is a member in good standing whose software says whatever it likes; a and b are honest.
"""

import re
import time
from pathlib import Path

import pytest
from keyed_stamps import signed
from test_members import tell

from happened.core.destinations import pack
from happened.core.errors import RemoteProtocolError
from happened.net.engine import CLOCK_SKEW, Engine
from happened.ordering import create
from happened.ordering.total.three_phase import AgreedMessage, AgreedProposal
from happened.wire import decode, encode, piggybacks
from happened.wire import membership as changes
from happened.wire.membership import DepartureStage, MemberExpelled, MemberJoined

NAMES = ["a", "b", "m"]
A, B, M = range(3)


def engines(protocol, names=NAMES):
    made = [Engine(name, names, protocol) for name in names if name != "m"]
    for each in made:
        each.time = time.time_ns()
    return made


def agree(a, b):
    """Carry frames between the two until there are none."""
    while a.outboxes[B] or b.outboxes[A]:
        tell(a, b, B)
        tell(b, a, A)


# What is refused.


@pytest.mark.parametrize("protocol", ["agreed", "causal-total"])
@pytest.mark.parametrize("beyond", [2**63 - 2, 2**62])
def test_a_timestamp_that_nobody_can_have_reached_is_refused_and_poisons_nobody(protocol, beyond):
    a, b = engines(protocol)
    with pytest.raises(RemoteProtocolError, match="no message can have timestamp"):
        a.receive(M, encode(AgreedMessage(M, 1, 3, pack([A]), 1, beyond, b"x")))
    a.multicast([A, M], b"y")
    with pytest.raises(RemoteProtocolError, match="no message can have timestamp"):
        a.receive(M, encode(AgreedProposal(A, 1, M, beyond)))
    b.multicast([A], b"z")
    agree(a, b)
    a.receive(M, encode(AgreedProposal(A, 1, M, 5)))
    assert a.delivered == 2


def test_what_an_earlier_version_accepted_is_replayed():
    _, b = engines("agreed")
    b.time += 2 * CLOCK_SKEW
    b.receive(M, encode(AgreedMessage(M, 1, 3, pack([B]), 1, time.time_ns() + 2 * CLOCK_SKEW, b"x")))
    batch = b.cut()
    again = Engine("b", NAMES, "agreed")
    again.replay(batch.entries, time.time_ns())
    assert again.machine.pending_count == 1


def test_the_registrar_does_not_believe_that_somebody_else_admits():
    a, b = engines("ks")
    a.join("d", "here:4")
    with pytest.raises(RemoteProtocolError, match="says that 'eve' was admitted, and only 'a' admits"):
        a.receive(M, changes.encode(MemberJoined(4, "eve", "there:4")))
    assert "eve" not in a.roster and a.members.registrar == A
    tell(a, b, B)
    tell(b, a, A)  # b passes it on, to a as well
    assert "d" in b.roster


def test_a_stage_of_a_departure_counts_for_its_speaker_alone():
    a, *_ = engines("ks", ["a", "b", "m", "d"])
    a.leave("d")
    a.receive(M, changes.encode(DepartureStage(3, 3)))
    assert a.members.departures[3].said == {M: 3} and a.members.departures[3].stage < 3


@pytest.mark.parametrize("protocol", ["ks", "bss", "agreed", "causal-total", "cbcast"])
def test_a_message_of_another_is_refused(protocol):
    a, _ = engines(protocol)
    forged = create(protocol, B, 3).multicast([A, M] if protocol != "bss" else [A, B, M], b"x").effects
    frame = encode(next(each.message for each in forged if getattr(each, "to", None) == A))
    with pytest.raises(RemoteProtocolError, match="a message of process 1 comes from process 2"):
        a.receive(M, frame)


# What it can still do: the lines of docs/runtime.md, each with its test.


def test_it_can_have_anybody_expelled():
    a, _ = engines("ks")
    a.receive(M, changes.encode(MemberExpelled(B)))
    assert B in a.gone


def test_it_can_make_others_than_the_registrar_believe_in_a_new_member():
    a, b = engines("ks")
    a.join("d", "here:4")
    tell(a, b, B)
    b.receive(M, changes.encode(MemberJoined(4, "eve", "there:4")))
    assert "eve" in b.roster
    b.multicast([A], b"x")
    with pytest.raises(RemoteProtocolError, match="only 'a' admits"):
        tell(b, a, A)


def test_it_can_name_messages_of_others_that_were_never_sent():
    """m says that a message of a to b, which a never sent, happened before its own."""
    _, b = engines("ks")
    liar, honest = create("ks", M, 3), create("ks", A, 3)
    for _ in range(5):
        message = honest.multicast([B, M], b"never sent to b").effects[-1].message
        liar.receive(message)
    b.receive(M, encode(liar.multicast([B], b"x").effects[0].message))
    assert b.machine.pending_count == 1 and b.delivered == 0


def test_it_can_tell_each_destination_something_else_under_one_name():
    a, b = engines("ks")
    for engine, payload in ((a, b"yes"), (b, b"no")):
        effects = create("ks", M, 3).multicast([A, B], payload).effects
        engine.receive(M, encode(next(each.message for each in effects if each.to == engine.me)))
    (one,), (other,) = a.unacknowledged.values(), b.unacknowledged.values()
    assert (one.sender, one.clock) == (other.sender, other.clock) and one.payload != other.payload


def test_it_can_keep_back_the_order_while_it_coordinates():
    a = Engine("a", NAMES, "sequencer", {"coordinator": M})
    a.multicast([A, B], b"x")
    assert a.delivered == 0 and len(a.outboxes[M]) == 1


def test_it_can_alter_what_it_relays():
    """Over a ring a's messages come to b from both sides; m's copy is there first."""
    options = {"overlay": [[A, M], [M, B], [B, A]]}
    b = Engine("b", NAMES, "flooding", options)
    effects = create("flooding", A, 3, **options).multicast([A, B, M], b"true").effects
    message, _ = decode(encode(next(each.message for each in effects if getattr(each, "to", None) == M)))
    relayed = create("flooding", M, 3, **options).receive(message)
    altered = next(each.message for each in relayed if getattr(each, "to", None) == B)
    b.receive(M, encode(altered._replace(payload=b"false")))
    assert [each.payload for each in b.unacknowledged.values()] == [b"false"]


def test_it_can_keep_back_what_it_relays():
    """a and b are linked by m alone."""
    options = {"overlay": [[A, M], [M, B]]}
    a, b = (Engine(name, NAMES, "flooding", options, signed=signed(name)) for name in "ab")
    a.multicast([A, B, M], b"x")
    assert not a.outboxes[B] and len(a.outboxes[M]) == 1 and b.delivered == 0


def test_it_can_put_what_it_relays_into_another_order():
    """m answers a's message, and tells b the answer first: so b delivers them."""
    options = {"overlay": [[A, M], [M, B]]}
    a, b, m = (Engine(name, NAMES, "flooding", options, signed=signed(name)) for name in NAMES)
    a.multicast([A, B, M], b"question")
    tell(a, m, M)
    m.multicast([A, B, M], b"answer")
    m.release(m.cut())
    (_, question), (_, answer) = m.outboxes[B].after(0, 1 << 20)
    b.receive(M, answer)
    b.receive(M, question)
    assert [each.payload for each in b.unacknowledged.values()] == [b"answer", b"question"]


def test_it_can_tell_each_destination_another_order_while_it_coordinates():
    a, b, *liars = (
        Engine(name, NAMES, "sequencer", {"coordinator": M}, signed=signed(name)) for name in "abmm"
    )
    a.multicast([A, B], b"x")
    b.multicast([A, B], b"y")
    for each in (a, b):
        each.release(each.cut())
    (x,), (y,) = (each.outboxes[M].after(0, 1 << 20) for each in (a, b))
    for liar, (first, second) in zip(liars, [((A, x), (B, y)), ((B, y), (A, x))], strict=True):
        for origin, (_, frame) in (first, second):
            liar.receive(origin, frame)
    for engine, liar in zip((a, b), liars, strict=True):
        tell(liar, engine, engine.me)
    orders = [[each.payload for each in engine.unacknowledged.values()] for engine in (a, b)]
    assert orders == [[b"x", b"y"], [b"y", b"x"]]


def test_it_can_alter_the_piggybacks_on_what_it_relays():
    """m tells b that a had seen an event of m that there never was."""
    options = {"overlay": [[A, M], [M, B]]}
    a, b, m = (Engine(name, NAMES, "flooding", options, tracker="p1", signed=signed(name)) for name in NAMES)
    a.tracking.relevant("true")
    a.multicast([A, B, M], b"x")
    tell(a, m, M)
    number, frame = piggybacks.unmark(m.outboxes[B].after(0, 1 << 20)[0][1])
    message, _ = decode(frame)
    true = piggybacks.open_sealed(message.payload)
    m.tracking.relevant("invented")
    m.multicast([A, B, M], b"y")
    m.release(m.cut())
    _, other = piggybacks.unmark(m.outboxes[B].after(1, 1 << 20)[0][1])
    false = piggybacks.open_sealed(decode(other)[0].payload)._replace(payload=true.payload)
    assert false.piggybacks[B] != true.piggybacks[B]
    lie = message._replace(payload=piggybacks.seal(false))
    b.receive(M, piggybacks.mark(number, encode(lie)))
    assert [each.payload for each in b.unacknowledged.values()] == [b"x"]


def test_it_can_go_to_the_bound_of_timestamps_and_the_others_go_on():
    a, b = engines("agreed")
    a.receive(M, encode(AgreedMessage(M, 1, 3, pack([A]), 1, a.time + CLOCK_SKEW, b"x")))
    for engine in (a, b):
        engine.time += 10**9
    b.multicast([A, B], b"y")
    agree(a, b)
    assert b.delivered == 1  # and at a once m has told the timestamp of its own


def test_every_line_of_the_page_has_its_test():
    page = (Path(__file__).parents[2] / "docs" / "runtime.md").read_text()
    section = page.split("## What a lying member can still do")[1].split("\n## ")[0]
    named = set(re.findall(r"`(test_it_can_\w+)`", section))
    assert named == {name for name in globals() if name.startswith("test_it_can_")}
