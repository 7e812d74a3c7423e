"""The token of serialized sends: one turn at a time, everybody who asks gets one, whoever joins, leaves or is
slow. The judge counts turns and requests; it does not look into the token."""

import pytest

from happened.core.errors import LocalProtocolError, RemoteProtocolError
from happened.ordering.token import Token, TokenPassed, TokenRequest
from happened.wire import MAX_FRAME, token_frames


class World:
    """Tokens of processes, and FIFO links between them; a frame crosses each in its bytes."""

    def __init__(self, dice, n, kind=Token):
        self.dice, self.kind = dice, kind
        self.tokens = {me: kind(me, n) for me in range(n)}
        self.links = {}
        self.asked, self.got = dict.fromkeys(range(n), 0), dict.fromkeys(range(n), 0)
        self.news = {}  # per process, what it has yet to hear of others

    def perform(self, me, effects):
        for to, message in effects:
            self.links.setdefault((me, to), []).append(token_frames.encode(message))
        self.count()

    def count(self):
        turns = [me for me, token in self.tokens.items() if token.has_turn]
        assert len(turns) <= 1
        on_the_way = [f for link in self.links.values() for f in link if f[2:4] == b"[2"]
        assert len(on_the_way) + sum(token.is_here for token in self.tokens.values()) == 1

    def want(self, me):
        if not self.tokens[me].wants:
            self.asked[me] += 1
            self.perform(me, self.tokens[me].request())

    def release(self, me, away=False):
        if self.tokens[me].has_turn:
            self.got[me] += 1
            self.perform(me, self.tokens[me].release((), away=away))

    def carry(self):
        ready = [link for link, frames in self.links.items() if frames and link[1] in self.tokens]
        if not ready:
            return False
        source, me = self.dice.choice(ready)
        message = token_frames.decode(self.links[source, me].pop(0))
        token = self.tokens[me]
        if isinstance(message, TokenRequest):
            self.perform(me, token.receive_request(message, ()))
        else:
            self.perform(me, token.receive_token(message))
        return True

    def join(self):
        """Everybody hears at once; that frames are on their way meanwhile is what matters."""
        me = len(self.asked)  # an index is given once
        for other, token in self.tokens.items():
            self.perform(other, token.join(me))
        self.tokens[me] = self.kind(me, me + 1)
        self.asked[me] = self.got[me] = 0

    def leave(self):
        for me, token in list(self.tokens.items()):
            if token.has_turn and len(self.tokens) - len(self.news) > 2:
                self.got[me] += 1
                self.perform(me, token.leave(me, ()))
                self.news[me] = set(self.tokens) - {me}
                return

    def hear(self):
        """Somebody hears of a departure, after whatever came over that link before; then nobody is left."""
        for gone, unaware in list(self.news.items()):
            unaware &= self.tokens.keys()
            for other in sorted(unaware):
                if not self.links.get((gone, other)) and self.dice.random() < 0.5:
                    unaware.discard(other)
                    self.perform(other, self.tokens[other].leave(gone, ()))
            if not unaware:
                del self.news[gone], self.tokens[gone]

    def settle(self):
        for _ in range(100_000):
            self.hear()
            for me in list(self.tokens):
                self.release(me)
            if not self.carry() and not self.news and not any(t.has_turn for t in self.tokens.values()):
                return
        raise AssertionError("it does not end")


@pytest.mark.parametrize("changes", [False, True])
def test_one_turn_at_a_time_and_everybody_gets_one(dice, changes):
    for _ in range(40):
        world = World(dice, dice.randint(1, 5))
        for _ in range(120):
            act = dice.random()
            present = [me for me in world.tokens if me not in world.news]
            if act < 0.3:
                world.want(dice.choice(present))
            elif act < 0.45:
                for me in present:
                    world.release(me, away=dice.random() < 0.2)
            elif act < 0.9 or not changes:
                world.carry()
            elif act < 0.93 and len(world.tokens) < 7 and not world.news:
                world.join()
            elif act < 0.96:
                world.leave()
            else:
                world.hear()
        world.settle()
        assert world.asked == world.got
    assert sum(world.got.values()) > 0


class Forgetful(Token):
    """Planted: newcomers do not hear what was asked for before they came."""

    def join(self, process):
        super().join(process)
        return []


def test_a_newcomer_hears_what_was_asked_for(dice):
    """0 passes the token to 3, who has just joined, before it hears that 1 has asked for it."""
    for kind, served in ((Token, 1), (Forgetful, 0)):
        world = World(dice, 3, kind)
        world.want(1)
        world.join()
        world.tokens[0].receive_request(TokenRequest(3, 1), ())  # lost to the links, as it is carried here
        world.tokens[3].wants = True
        world.tokens[3].receive_token(TokenPassed((), (), 0, ()))
        world.links = {link: frames for link, frames in world.links.items() if link[1] == 3}
        while any(world.links.values()):
            world.carry()
        world.release(3)
        assert sum(map(len, world.links.values())) == served


def test_the_token_itself_tells_who_has_gone():
    """0 leaves, and the token reaches 2 before the news of that; 2 goes away, and must not hand it to 0."""
    zero, one, two = (Token(me, 3) for me in range(3))
    zero.request()
    two.request()
    ((to, passed),) = zero.leave(0, ())
    assert to == 1
    one.receive_request(TokenRequest(2, 1), ())
    ((to, passed),) = one.receive_token(passed)
    assert to == 2 and two.receive_token(passed) == [] and two.has_turn
    ((to, _),) = two.release((), away=True)
    assert to == 1


def test_nobody_leaves_out_of_turn_and_there_is_one_token():
    token = Token(0, 2)
    with pytest.raises(LocalProtocolError, match="in its turn"):
        token.leave(0, ())
    with pytest.raises(RemoteProtocolError, match="two tokens"):
        token.receive_token(TokenPassed((), (), 0, ()))
    with pytest.raises(LocalProtocolError, match="does not have the token"):
        Token(1, 2).release(())
    with pytest.raises(RemoteProtocolError, match="asks for the token"):
        token.receive_request(TokenRequest(5, 1), ())
    with pytest.raises(RemoteProtocolError, match="not a token for process 1"):
        Token(1, 2).receive_token(TokenPassed((), (), 2, ()))


def test_frames_are_written_in_the_same_bytes():
    passed = TokenPassed(((0, 2), (3, 1)), (1, 2), 16, ((2, (9, 0)),))
    data = b'\xfc\x01[2,[[0,2],[3,1]],[1,2],"0x10",[[2,[9,0]]]]'
    assert token_frames.encode(passed) == data and token_frames.decode(data) == passed
    assert token_frames.encode(TokenRequest(1, 7)) == b"\xfc\x01[1,1,7]"


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "cut off"),
        (b"\xfc", "cut off"),
        (b"\xfc\x02[1,1,7]", "upgrade this node"),
        (b"\xfc\x01[1,1,-7]", "no numbers"),
        (b"\xfc\x01[1,1,true]", "no numbers"),
        (b"\xfc\x01[3]", "not a frame"),
        (b"\xfc\x01{", "not a frame"),
        (b'\xfc\x01[2,[[1]],[],"0x0",[]]', "not a frame"),
        (b'\xfc\x01[2,[],[],"-1",[]]', "no set"),
        (b'\xfc\x01[2,[],[],"0x0",["x"]]', "no numbers"),
        (b"\xfc\x01" + b"[" * 100_000, "not a frame"),
        (b"\xfc" * (MAX_FRAME + 1), "too long"),
    ],
    ids=range(12),
)
def test_hostile_frames_are_refused(data, why):
    with pytest.raises(RemoteProtocolError, match=why):
        token_frames.decode(data)
