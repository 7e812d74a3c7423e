"""The handshake and the sealed frames, without sockets: two machines and the bytes between them."""

import contextlib
import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from happened.core.errors import LocalProtocolError, RemoteProtocolError
from happened.net import handshake
from happened.net.handshake import Handshake, HandshakeError, Mode, Reason, SealedChannel

KEY, OTHER_KEY = b"k" * 32, b"o" * 32
NONCES = [bytes((n,)) * 32 for n in range(8)]
# What each mode has to know about the other end besides its bytes: TLS certifies the peer's name.
PROOFS = {Mode.PLAINTEXT: {}, Mode.SHARED_KEY: {"key": KEY}, Mode.TLS: {}}


def pair(
    mode=Mode.SHARED_KEY, *, wanted="bob", caller="alice", called="bob", caller_with=None, called_with=None
):
    proof = PROOFS[mode]
    certified = {"certified": called} if mode is Mode.TLS else {}
    certified_back = {"certified": caller} if mode is Mode.TLS else {}
    calling = Handshake(
        caller, mode, nonce=NONCES[1], wanted=wanted, **{**proof, **certified, **(caller_with or {})}
    )
    answering = Handshake(called, mode, nonce=NONCES[2], **{**proof, **certified_back, **(called_with or {})})
    return calling, answering


def converse(calling, answering, *, chunk=None):
    """Carry bytes both ways, in pieces if asked, until both are silent."""
    for_answering, for_calling = calling.begin(), b""
    while for_answering or for_calling:
        data, for_answering = for_answering, b""
        for piece in pieces(data, chunk):
            for_calling += answering.receive(piece)
        data, for_calling = for_calling, b""
        for piece in pieces(data, chunk):
            for_answering += calling.receive(piece)


def pieces(data, size):
    return [data] if size is None else [data[i : i + size] for i in range(0, len(data), size)]


def refused(reason, act, *arguments):
    with pytest.raises(HandshakeError) as caught:
        act(*arguments)
    assert caught.value.reason is reason
    return caught.value


@pytest.mark.parametrize("mode", Mode)
@pytest.mark.parametrize("chunk", [None, 1, 7])
def test_both_ends_learn_who_the_other_is(mode, chunk):
    calling, answering = pair(mode)
    converse(calling, answering, chunk=chunk)
    assert (calling.peer, answering.peer) == ("bob", "alice")


@pytest.mark.parametrize("mode", Mode)
def test_what_follows_the_handshake_is_kept_for_the_frames(mode):
    calling, answering = pair(mode)
    reply = answering.receive(calling.begin() + (b"" if mode is Mode.SHARED_KEY else b"frames"))
    proof = calling.receive(reply + b"more frames")
    if mode is Mode.SHARED_KEY:
        answering.receive(proof + b"frames")
    assert (calling.rest, answering.rest) == (b"more frames", b"frames")


def test_a_responder_says_nothing_before_it_is_spoken_to():
    assert pair()[1].begin() == b""


@pytest.mark.parametrize("name", ["", "x" * 256, "ä" * 128, "a\nb", "a\0b", "\ud800"])
def test_what_cannot_be_a_name_is_a_clear_local_error(name):
    with pytest.raises(LocalProtocolError, match="no name of a process"):
        Handshake(name, Mode.PLAINTEXT, nonce=NONCES[0])


@pytest.mark.parametrize(
    ("mode", "given", "message"),
    [
        pytest.param(Mode.SHARED_KEY, {"key": b"k" * 31}, "happened node keys shared", id="a short key"),
        pytest.param(Mode.SHARED_KEY, {"key": KEY, "nonce": b"n" * 31}, "a nonce has 32", id="a short nonce"),
        pytest.param(Mode.TLS, {}, "the name in the peer's certificate", id="TLS without a certificate"),
    ],
)
def test_a_guard_that_gives_too_little_is_told_so(mode, given, message):
    with pytest.raises(LocalProtocolError, match=message):
        Handshake("alice", mode, **{"nonce": NONCES[0], **given})


def test_the_longest_name_fits():
    longest = "ä" * 127 + "x"
    calling, answering = pair(wanted="b" * 255, called="b" * 255, caller=longest)
    converse(calling, answering)
    assert answering.peer == longest
    assert len(calling.begin()) == handshake.MAX_HELLO


def test_the_wrong_key_is_refused_by_the_caller_and_the_other_end_is_told():
    calling, answering = pair(called_with={"key": OTHER_KEY})
    answer = answering.receive(calling.begin())
    error = refused(Reason.PROOF, calling.receive, answer)
    assert calling.peer is None and "shared key" in str(error)
    # What the responder waits for now is a proof; the refusal is shorter, and the connection ends with it.
    assert answering.receive(error.answer) == b"" and answering.peer is None


def test_a_caller_without_the_key_is_refused_by_the_responder():
    calling, answering = pair()
    answering.receive(calling.begin())
    refused(Reason.PROOF, answering.receive, b"\0" * handshake.PROOF_SIZE)
    assert answering.peer is None


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        pytest.param({"wanted": "carol"}, Reason.ADDRESSEE, id="it wanted somebody else"),
        pytest.param({"caller": "bob"}, Reason.NAME, id="it has our own name"),
        pytest.param(
            {"mode": Mode.TLS, "called_with": {"certified": "mallory"}},
            Reason.NAME,
            id="its certificate is mallory's",
        ),
    ],
)
def test_a_responder_refuses(changes, reason):
    calling, answering = pair(**changes)
    error = refused(reason, answering.receive, calling.begin())
    told = refused(Reason.REFUSED, calling.receive, error.answer)
    assert told.answer == b"", "a refusal is not answered"
    assert "it refused us" in str(told)
    with pytest.raises(LocalProtocolError, match="has failed"):
        answering.receive(b"")


@pytest.mark.parametrize("mode", [Mode.PLAINTEXT, Mode.TLS])
def test_a_caller_refuses_whoever_is_not_the_wanted_one(mode):
    calling = Handshake("alice", mode, nonce=NONCES[1], wanted="bob", certified="mallory")
    mallory = Handshake("mallory", mode, nonce=NONCES[2], certified="alice")
    # Mallory answers a call that was meant for bob, under its own name.
    answer = mallory.receive(calling.begin().replace(b"\x03bob", b"\x07mallory"))
    refused(Reason.NAME, calling.receive, answer)


def test_a_caller_refuses_a_certificate_of_another_that_claims_the_wanted_name():
    calling, answering = pair(Mode.TLS, caller_with={"certified": "mallory"})
    error = refused(Reason.NAME, calling.receive, answering.receive(calling.begin()))
    assert "certificate names 'mallory'" in str(error)


@pytest.mark.parametrize(("ours", "theirs"), list(itertools.permutations(Mode, 2)))
def test_neither_end_can_be_talked_into_another_mode(ours, theirs):
    calling, _ = pair(theirs)
    _, answering = pair(ours)
    refused(Reason.MODE, answering.receive, calling.begin())


def test_our_own_bytes_reflected_are_refused():
    calling, answering = pair()
    refused(Reason.ROLE, calling.receive, calling.begin())
    calling, answering = pair()
    answer = answering.receive(calling.begin())
    _, another = pair()
    refused(Reason.ROLE, another.receive, answer)
    # Nor is a responder's own proof, sent back, the initiator's.
    refused(Reason.PROOF, answering.receive, answer[-handshake.PROOF_SIZE :])


def test_a_recorded_conversation_convinces_nobody_a_second_time():
    calling, answering = pair()
    hello = calling.begin()
    proof = calling.receive(answering.receive(hello))
    answering.receive(proof)
    assert answering.peer == "alice"
    fresh = Handshake("bob", Mode.SHARED_KEY, nonce=NONCES[3], key=KEY)
    fresh.receive(hello)
    refused(Reason.PROOF, fresh.receive, proof)


def test_another_version_is_refused():
    hello = bytearray(pair()[0].begin())
    hello[4] += 1
    error = refused(Reason.VERSION, pair()[1].receive, bytes(hello))
    assert "version 2" in str(error)


def test_wrong_bytes_fail_at_the_first_of_them():
    for data in (b"G", b"GET / HTTP/1.1", b"h\0", b"\x16\x03\x01"):
        refused(Reason.MALFORMED, pair()[1].receive, data)


def test_every_altered_bit_of_a_shared_key_handshake_is_noticed():
    """Between the two, one bit is changed, anywhere: whoever hears it believes in no peer."""
    calling, answering = pair()
    first = calling.begin()
    second = answering.receive(first)
    third = calling.receive(second)
    for which, message in enumerate((first, second, third)):
        for bit in range(len(message) * 8):
            altered = bytearray(message)
            altered[bit // 8] ^= 1 << bit % 8
            said = [first, second, third]
            said[which] = bytes(altered)
            calling, answering = pair()
            with contextlib.suppress(HandshakeError):
                if which == 1:
                    calling.receive(said[1])
                else:
                    answering.receive(said[0])
                    answering.receive(said[2])
            assert (calling.peer, answering.peer) == (None, None), (which, bit)
    assert len(first) + len(second) + len(third) > 150


@given(st.lists(st.binary(max_size=80), max_size=12), st.booleans(), st.sampled_from(Mode))
def test_no_bytes_hurt(chunks, initiator, mode):
    """Whatever arrives, in whatever pieces: a refusal or patience, bounded memory, no peer."""
    end = pair(mode)[0 if initiator else 1]
    end.begin()
    for chunk in chunks:
        try:
            end.receive(chunk)
        except HandshakeError:
            break
        assert len(end._buffer) <= handshake.MAX_HELLO + 80
    assert end.peer is None


@given(data=st.data(), mode=st.sampled_from(Mode))
def test_no_damage_to_genuine_bytes_makes_a_false_peer(data, mode):
    calling, answering = pair(mode)
    hello = calling.begin()
    place = data.draw(st.integers(0, len(hello)))
    cut = data.draw(st.integers(0, 8))
    damaged = hello[:place] + data.draw(st.binary(max_size=8)) + hello[place + cut :]
    try:
        answering.receive(damaged)
    except HandshakeError:
        assert answering.peer is None
    # Without a key the name is all there is to believe, with TLS it is the certificate's.
    if mode is Mode.SHARED_KEY:
        assert answering.peer is None
    if mode is Mode.TLS:
        assert answering.peer in (None, "alice")


# Sealed frames


def channels():
    calling, answering = pair()
    converse(calling, answering)
    return calling.channel, answering.channel


def test_sealed_frames_are_opened_in_order_and_both_ways():
    a, b = channels()
    for frame in (b"", b"x", b"y" * 1000, b"x"):
        assert b.open(a.seal(frame)) == frame
        assert a.open(b.seal(frame)) == frame


@pytest.mark.parametrize(
    "arrivals",
    [
        pytest.param(lambda s: [s[0], s[0]], id="replayed"),
        pytest.param(lambda s: [s[1], s[0]], id="reordered"),
        pytest.param(lambda s: [s[0], s[2]], id="one left out"),
        pytest.param(lambda s: [s[0][:-1]], id="cut short"),
        pytest.param(lambda s: [s[0] + b"\0"], id="made longer"),
        pytest.param(lambda s: [b""], id="empty"),
        pytest.param(lambda s: [s[0][:8]], id="shorter than a tag"),
    ],
)
def test_a_frame_out_of_its_place_is_refused(arrivals):
    a, b = channels()
    sealed = arrivals([a.seal(frame) for frame in (b"one", b"two", b"three")])
    with pytest.raises(RemoteProtocolError, match="altered, repeated or out of its place"):
        for data in sealed:
            b.open(data)


def test_a_frame_sent_back_to_its_maker_is_refused():
    a, b = channels()
    sealed = a.seal(b"x")
    with pytest.raises(RemoteProtocolError):
        a.open(sealed)
    assert b.open(sealed) == b"x"


def test_a_frame_of_another_session_is_refused():
    a, _ = channels()
    calling = Handshake("alice", Mode.SHARED_KEY, nonce=NONCES[4], wanted="bob", key=KEY)
    answering = Handshake("bob", Mode.SHARED_KEY, nonce=NONCES[2], key=KEY)
    converse(calling, answering)
    with pytest.raises(RemoteProtocolError):
        answering.channel.open(a.seal(b"x"))


@given(st.binary(max_size=64), st.integers(0), st.integers(0, 7))
def test_every_altered_bit_of_a_frame_is_noticed(frame, place, bit):
    a, b = SealedChannel(outgoing=KEY, incoming=OTHER_KEY), SealedChannel(outgoing=OTHER_KEY, incoming=KEY)
    sealed = bytearray(a.seal(frame))
    sealed[place % len(sealed)] ^= 1 << bit
    with pytest.raises(RemoteProtocolError):
        b.open(bytes(sealed))
