"""The judge finds nothing in good logs, and every kind of fault that is planted in them."""

import random
from itertools import pairwise

import pytest

from harness.judge import judge

NAMES = ("alice", "bob", "carol")


class Story:
    """Logs as processes write them, a line at a time."""

    def __init__(self):
        self.logs = {name: [] for name in NAMES}
        self.lives = dict.fromkeys(NAMES, 0)
        self.counts = dict.fromkeys(NAMES, 0)
        for name in NAMES:
            self.begin(name)

    def write(self, name, what, **fields):
        self.logs[name].append({"what": what, **fields})

    def begin(self, name, void=False):
        self.lives[name] += 1
        self.write(name, "life", number=self.lives[name], void=void)

    def ask(self, name, *to, ordered=True, **more):
        self.counts[name] += 1
        key = f"{name}.{self.lives[name]}.{self.counts[name]}"
        self.write(name, "ask", key=key, to=sorted(to), digest=f"of {key}", ordered=ordered, **more)
        return key

    def send(self, name, *to, **more):
        key = self.ask(name, *to, **more)
        self.write(name, "sent", key=key)
        return key

    def get(self, name, key, **more):
        self.write(name, "got", **{"key": key, "digest": f"of {key}", "sender": key.split(".")[0], **more})

    def ack(self, name, key):
        self.write(name, "acking", key=key)
        self.write(name, "acked", key=key)

    def take(self, name, key):
        self.get(name, key)
        self.ack(name, key)


def good_story(dice):
    """Everybody gets what is for it in the order in which it was asked for, acknowledges late, and dies."""
    story = Story()
    coming = {name: [] for name in NAMES}
    unacked = {name: [] for name in NAMES}
    for step in range(300):
        name = dice.choice(NAMES)
        match dice.choice(("send", "get", "get", "get", "ack", "die")):
            case "send" if step < 200:
                to = dice.sample([other for other in NAMES if other != name], dice.randint(1, 2))
                key = story.send(name, *to, ordered=dice.random() < 0.9)
                for other in to:
                    coming[other].append(key)
            case "get" if coming[name]:
                key = coming[name].pop(0)
                story.get(name, key)
                unacked[name].append(key)
            case "ack" if unacked[name]:
                story.ack(name, unacked[name].pop(dice.randrange(len(unacked[name]))))
            case "die":
                story.begin(name)
                coming[name] = unacked[name] + coming[name]
                unacked[name] = []
    for name in NAMES:
        for key in unacked[name]:
            story.ack(name, key)
        for key in coming[name]:
            story.take(name, key)
    return story.logs


def found(logs, **orders):
    return {fault.kind for fault in judge(logs, **orders).faults}


def test_good_logs_are_good(dice):
    again = pairs = 0
    for _ in range(30):
        judgement = judge(good_story(dice), causal=True, total=True)
        assert judgement.faults == []
        assert judgement.confirmed == judgement.asked > 20
        again += judgement.handed_over_again
        pairs += judgement.pairs
    assert again > 30 and pairs > 1000


def lines(logs, what):
    return [
        (name, place) for name in logs for place, record in enumerate(logs[name]) if record["what"] == what
    ]


def without(logs, name, key, *what):
    logs[name][:] = [r for r in logs[name] if r["what"] not in what or r["key"] != key]


def some_got(logs, dice):
    name, place = dice.choice(lines(logs, "got"))
    return name, place, logs[name][place]["key"]


def lose(logs, dice):
    name, _, key = some_got(logs, dice)
    without(logs, name, key, "got", "acking", "acked")
    return "lost"


def lose_a_part(logs, dice):
    """Not confirmed, and handed over at one of two destinations."""
    asks = [
        (name, logs[name][place]) for name, place in lines(logs, "ask") if len(logs[name][place]["to"]) == 2
    ]
    sender, ask = dice.choice(asks)
    without(logs, sender, ask["key"], "sent")
    without(logs, dice.choice(ask["to"]), ask["key"], "got", "acking", "acked")
    return "lost"


def forget_to_hand_over_again(logs, dice):
    name, _, key = some_got(logs, dice)
    without(logs, name, key, "acking", "acked")
    return "lost"


def repeat_after_ack(logs, dice):
    name, place = dice.choice(lines(logs, "acked"))
    key = logs[name][place]["key"]
    got = next(record for record in logs[name] if record["what"] == "got" and record["key"] == key)
    logs[name] += [{"what": "life", "number": 99, "void": False}, got, {"what": "acking", "key": key}]
    return "repeated"


def repeat_in_one_life(logs, dice):
    name, place, _ = some_got(logs, dice)
    logs[name].insert(place + 1, logs[name][place])
    return "repeated"


def overtake_in_a_channel(logs, dice):
    """Two messages of one sender that are handed over one after the other change places."""
    ordered = {logs[n][p]["key"] for n, p in lines(logs, "ask") if logs[n][p]["ordered"]}
    pairs = []
    for name in NAMES:
        gots = [p for p, r in enumerate(logs[name]) if r["what"] == "got" and r["key"] in ordered]
        for one, two in pairwise(gots):
            between = {record["what"] for record in logs[name][one:two]}
            if between.isdisjoint({"life", "ask"}) and logs[name][one]["sender"] == logs[name][two]["sender"]:
                pairs.append((name, one, two))
    name, one, two = dice.choice(pairs)
    logs[name][one], logs[name][two] = logs[name][two], logs[name][one]
    return "misordered"


def make_up(logs, dice):
    name, place, _ = some_got(logs, dice)
    logs[name].insert(place, {"what": "got", "key": "nobody.1.1", "digest": "", "sender": "nobody"})
    return "invented"


def alter(logs, dice):
    name, place, _ = some_got(logs, dice)
    logs[name][place] = logs[name][place] | {"digest": "of another"}
    return "invented"


def change_the_sender(logs, dice):
    name, place, _ = some_got(logs, dice)
    logs[name][place] = logs[name][place] | {"sender": name}
    return "invented"


def send_what_was_refused(logs, dice):
    sender, place = dice.choice(lines(logs, "sent"))
    logs[sender][place] = logs[sender][place] | {"what": "refused"}
    return "invented"


def hand_over_to_somebody_else(logs, dice):
    sender, place = dice.choice([(n, p) for n, p in lines(logs, "ask") if len(logs[n][p]["to"]) == 1])
    ask = logs[sender][place]
    [stranger] = set(NAMES) - {sender, *ask["to"]}
    got = {"what": "got", "key": ask["key"], "digest": ask["digest"], "sender": sender}
    logs[stranger].append(got)
    return "misaddressed"


def get_before_it_was_asked(logs, dice):
    """Its sender had, before it asked, an answer to it."""
    name, place, _ = some_got(logs, dice)
    logs[name].insert(0, logs[name].pop(place))
    sender = logs[name][0]["sender"]
    mine = {"what": "ask", "key": f"{name}.0.1", "to": [sender], "digest": "", "ordered": True}
    logs[name].insert(1, mine)
    logs[sender].insert(0, {"what": "got", "key": mine["key"], "digest": "", "sender": name})
    return "invented"


PLANTS = (
    lose,
    lose_a_part,
    forget_to_hand_over_again,
    repeat_after_ack,
    repeat_in_one_life,
    overtake_in_a_channel,
    make_up,
    alter,
    change_the_sender,
    send_what_was_refused,
    hand_over_to_somebody_else,
    get_before_it_was_asked,
)


@pytest.mark.parametrize("plant", PLANTS, ids=lambda plant: plant.__name__)
def test_a_planted_fault_is_found(plant, seed):
    for number in range(20):
        dice = random.Random(f"{seed} {number}")
        logs = good_story(dice)
        expected = plant(logs, dice)
        assert expected in found(logs), f"planted in story {number}"


def test_an_answer_overtakes_its_question():
    story = Story()
    question = story.send("alice", "bob", "carol")
    story.take("bob", question)
    answer = story.send("bob", "carol")
    story.take("carol", answer)
    story.take("carol", question)
    assert found(story.logs) == {"misordered"}
    assert found(story.logs, causal=False) == set()


def test_an_answer_in_a_later_life_still_follows_the_question():
    story = Story()
    question = story.send("alice", "bob", "carol")
    story.take("bob", question)
    story.begin("bob")
    answer = story.send("bob", "carol")
    story.take("carol", answer)
    story.take("carol", question)
    assert found(story.logs) == {"misordered"}


def test_what_comes_again_comes_in_order_again():
    story = Story()
    one, two = story.send("alice", "bob"), story.send("alice", "bob")
    story.get("bob", one)
    story.get("bob", two)
    story.begin("bob")
    story.take("bob", two)
    story.take("bob", one)
    assert found(story.logs) == {"misordered"}


def test_messages_without_order_have_none():
    story = Story()
    one, two = story.send("alice", "bob", ordered=False), story.send("alice", "bob")
    story.take("bob", two)
    story.take("bob", one)
    assert found(story.logs, total=True) == set()


def test_two_orders_of_the_same_messages_disagree():
    story = Story()
    one, two = story.send("alice", "bob", "carol"), story.send("bob", "alice", "carol")
    three = story.send("carol", "bob", "alice")
    for name, order in {"alice": (two, three), "bob": (three, one), "carol": (one, two)}.items():
        for key in order:
            story.take(name, key)
    assert found(story.logs) == set()
    assert found(story.logs, total=True) == {"disagreed"}


@pytest.mark.parametrize("came_again", (False, True))
@pytest.mark.parametrize("went_out", (False, True))
def test_an_acknowledgement_and_its_multicast_happen_both_or_neither(came_again, went_out):
    story = Story()
    question = story.send("alice", "bob")
    story.get("bob", question)
    answer = story.ask("bob", "alice", with_ack=question)
    story.write("bob", "acking", key=question)
    if went_out:
        story.take("alice", answer)
    story.begin("bob")
    if came_again:
        story.take("bob", question)
    assert found(story.logs) == ({"torn"} if came_again == went_out else set())


def test_a_life_on_an_old_copy_proves_nothing_and_reaches_nobody():
    story = Story()
    one = story.send("alice", "bob")
    story.take("bob", one)
    story.begin("bob", void=True)
    story.take("bob", one)
    lost = story.send("bob", "carol")
    story.begin("bob")
    assert found(story.logs) == set()
    story.take("carol", lost)
    assert found(story.logs) == {"invented"}


def test_an_acknowledgement_on_an_old_copy_does_not_count():
    story = Story()
    one = story.send("alice", "bob")
    story.begin("bob", void=True)
    story.take("bob", one)
    story.begin("bob")
    assert found(story.logs) == {"lost"}
