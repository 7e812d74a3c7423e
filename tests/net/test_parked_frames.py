"""Links that park frames in a real journal, killed at any time, against links that keep all in memory."""

import json
from random import Random

import pytest

from happened.net.engine import Engine
from happened.net.errors import JournalError
from happened.net.journal import ROW_BYTES, Identity, Journal
from happened.net.link import EVERYTHING, SEGMENT, Links, Outbox, Parked, Parking

PEERS = (1, 2, 3)
MOST = 60
IDENTITY = Identity("a", "ks", "{}", ("a", "b", "c", "d"))


class Parkers:
    """Links that park beyond MOST bytes, with a journal of what was done to them: always for the first peer,
    never for the last, and for the other one as it was started with.

    `plain` are links without a bound that are given the same, and never killed. `had` is, per link, the last
    frame that can have left.
    """

    def __init__(self, path, dice):
        self.path, self.dice = path, dice
        self.plain = Links(PEERS)
        self.had = dict.fromkeys(PEERS, 0)
        self.kills = self.loads = self.most_in_memory = 0
        self.inputs = []
        self.start()

    def start(self):
        self.journal = Journal(self.path, flush=False)
        self.journal.open(IDENTITY)
        self.links = Links(PEERS)
        self.parks = PEERS[: self.dice.randint(1, 2)]
        self.links.bound(MOST, 1000, self.parks.__contains__)
        state = self.journal.snapshot()
        if state is not None:
            size = int.from_bytes(state[:4], "big")
            blobs = state[4 + size :]

            def take(length):
                nonlocal blobs
                taken, blobs = blobs[:length], blobs[length:]
                return taken

            self.links.restore(json.loads(state[4 : 4 + size]), take)
        with self.journal.parking_again(self.links.on_disk()) as park:
            for _, entries in self.journal.batches():
                for what in json.loads(entries):
                    do(self.links, what)
                if (parking := self.links.cut()[2]) is not None:
                    park(parking)
                release(self.links, parking)

    def kill(self):
        self.kills += 1
        self.journal.close()
        for what in self.inputs:  # of a batch that is lost: nobody has seen anything of it
            if what[0] == "put":
                outbox = self.plain.outboxes[what[1]]
                outbox.last -= 1
                outbox.bytes -= len(outbox.unacknowledged.pop())
        self.inputs = []
        self.start()

    def give(self, *what):
        do(self.links, what)
        do(self.plain, what)
        self.inputs.append(what)
        if what[0] in ("open", "empty"):  # these are not undone by `kill`
            self.commit(snapshot=False)
            self.had[what[1]] = self.links.outboxes[what[1]].acknowledged

    def commit(self, *, snapshot):
        parking = self.links.cut()[2]
        state = None
        if snapshot:
            head, blobs = self.links.state()
            text = json.dumps(head).encode()
            state = len(text).to_bytes(4, "big") + text + b"".join(blobs)
            # Of each link what is in memory, and numbers.
            assert sum(map(len, blobs)) == sum(each.bytes for each in self.links.outboxes.values())
        after = self.journal.append(0, json.dumps(self.inputs).encode(), state, parking)
        if snapshot and self.dice.random() < 0.7:  # else killed in between: the older state is begun with
            self.journal.forget(after)
        release(self.links, parking)
        release(self.plain, None)
        self.inputs = []

    def load(self):
        for link in sorted(self.links.parked):
            outbox = self.links.outboxes[link]
            if outbox.wants_parked(MOST):
                self.loads += 1
                frames = self.journal.parked(link, outbox.loaded, MOST - outbox.bytes)
                self.links.unpark(link, outbox.loaded + 1, frames)

    def step(self):
        dice, act = self.dice, self.dice.random()
        link = dice.choice(PEERS)
        outbox = self.links.outboxes[link]
        self.had[link] = max(self.had[link], min(outbox.loaded, outbox.released))
        if act < 0.55:
            self.give("put", link, dice.randbytes(dice.randint(1, 25)).hex())
        elif act < 0.68 and not any(each[0] == "put" for each in self.inputs):
            # After a restart the peer can have more than what is in memory.
            self.give(
                "free", link, dice.randint(outbox.acknowledged, max(self.had[link], outbox.acknowledged))
            )
            self.commit(snapshot=False)
        elif act < 0.80:
            self.commit(snapshot=False)
        elif act < 0.84:
            self.commit(snapshot=True)
            if dice.random() < 0.5:
                self.kill()
        elif act < 0.94:
            self.load()
        elif act < 0.96:
            self.give(dice.choice(("open", "empty")), link)
        elif act > 0.97:
            self.kill()

    def check(self):
        for link, plain in self.plain.outboxes.items():
            ours = self.links.outboxes[link]
            assert (ours.last, len(ours)) == (plain.last, len(plain)), link
            inside = [frame for _, frame in ours.after(0, 1 << 30)]
            expected = [frame for _, frame in plain.after(0, 1 << 30)]
            assert inside == expected[: len(inside)]
            assert ours.parked.bytes >= sum(map(len, expected[ours.loaded - ours.acknowledged :]))
            if link == PEERS[0]:
                assert ours.bytes <= MOST + 25
            total = ours.bytes + ours.parked.bytes
            assert (link in self.links.full) == (total > MOST + (1000 if link in self.parks else 0))
            self.most_in_memory = max(self.most_in_memory, ours.bytes)

    def drain(self):
        """Let every peer take everything; returns what each was given."""
        taken = {link: [] for link in PEERS}
        self.commit(snapshot=False)
        while any(map(len, self.links.outboxes.values())):
            for link, outbox in self.links.outboxes.items():
                for number, frame in outbox.after(outbox.acknowledged, 50):
                    taken[link].append(frame)
                    do(self.links, ("free", link, number))
                    self.inputs.append(("free", link, number))
            self.commit(snapshot=False)
            self.load()
        return taken


def do(links, what):
    act, link, *rest = what
    if act == "put":
        links.put(link, bytes.fromhex(rest[0]))
    elif act == "free":
        links.outboxes[link].release(rest[0])
        links.free(link, rest[0])
    else:
        getattr(links, act)(link)


def release(links, parking):
    for link, frames in parking.frames.items() if parking is not None else ():
        links.outboxes[link].written = frames[-1][0]
    for outbox in links.outboxes.values():
        outbox.release(outbox.last)


def test_parked_frames_are_those_of_an_unbounded_outbox_whatever_is_killed(tmp_path, dice: Random):
    kills = loads = 0
    for round_ in range(24):
        parkers = Parkers(tmp_path / f"{round_}.journal", dice)
        for _ in range(250):
            parkers.step()
            parkers.check()
        parkers.commit(snapshot=False)
        expected = {link: list(each.unacknowledged) for link, each in parkers.plain.outboxes.items()}
        parkers.kill()
        assert parkers.drain() == expected
        rows = parkers.journal._db.execute("SELECT count(*) FROM parked").fetchone()[0]
        assert rows == 0 and not parkers.links.parked and not parkers.links.full
        parkers.journal.close()
        kills, loads = kills + parkers.kills, loads + parkers.loads
    assert kills > 15 and loads > 50


def journal_with(path, frames):
    journal = Journal(path, flush=False)
    journal.open(IDENTITY)
    journal.append(0, b"", None, Parking({}, {1: frames}))
    return journal


def test_long_batches_are_rows_that_are_read_a_few_at_a_time(tmp_path):
    frames = [(number, bytes([number]) * (ROW_BYTES // 2)) for number in range(1, 20)]
    journal = journal_with(tmp_path / "j", frames)
    rows = journal._db.execute("SELECT max(length(frames)), count(*) FROM parked").fetchone()
    assert rows[0] < 2 * ROW_BYTES and rows[1] == 10
    assert journal.parked(1, 4, 1) == [frames[4][1]]
    assert journal.parked(1, 5, 1 << 30) == [frame for _, frame in frames[5:]]
    journal.close()


def test_parked_frames_that_are_damaged_or_missing_are_refused(tmp_path):
    journal = journal_with(tmp_path / "j", [(3, b"three"), (4, b"four")])
    with pytest.raises(JournalError, match="frame 2 to process 1 is missing"):
        journal.parked(1, 1, 100)
    with pytest.raises(JournalError, match="frame 5 to process 1 is missing"):
        journal.parked(1, 4, 100)
    journal._db.execute("UPDATE parked SET frames = ?", (b"\0\0\0\1x",))
    with pytest.raises(JournalError, match="frames 3 to 4 to process 1 are not what was written"):
        journal.parked(1, 2, 100)
    journal.close()


def test_sizes_are_kept_for_segments_and_never_too_low(dice: Random):
    parked, sizes = Parked(), []
    for number in range(1, 5001):
        sizes.append(dice.randint(1, 2000))
        parked.add(number, sizes[-1])
    assert parked.bytes == sum(sizes) and len(parked.segments()) <= sum(sizes) / SEGMENT + 1
    for through in range(0, 5001, 7):
        parked.drop(through)
        assert 0 <= parked.bytes - sum(sizes[through:]) <= SEGMENT + 2000
    parked.drop(5000)
    assert not parked and not parked.bytes


def test_frames_that_come_back_late_are_passed_over():
    """The peer says that it has frames which are being read from disk."""
    outbox = Outbox(0, [b"one"])
    for frame in (b"two", b"three", b"four"):
        outbox.park(frame)
    outbox.written = outbox.last
    outbox.release(4)
    outbox.acknowledge(3)
    outbox.unpark(2, [b"two", b"three", b"four"])
    assert outbox.after(0, 100) == [(4, b"four")] and outbox.bytes == 4 and not outbox.parked


def test_frames_for_somebody_whose_index_is_given_again_are_not_written():
    links = Links([1])
    links.bound(0, 1000, lambda link: True)
    links.put(1, b"one")
    links.put(1, b"two")
    assert links.parking_bytes == 3
    links.open(1)
    links.put(1, b"other")
    assert links.cut()[2] == Parking({1: EVERYTHING}, {}) and links.parking_bytes == 0


def test_a_medium_is_not_given_what_is_parked():
    """It would keep the frames in memory for as long as it cannot send."""
    engine = Engine("a", ("a", "b", "c"), "rst", shares=True)
    engine.links.bound(100, 10_000, lambda link: link == 1)
    for _ in range(5):
        engine.multicast([1, 2], b"x" * 60)
    batch = engine.cut()
    links = [sorted(numbers) for _, numbers in batch.shared]
    assert links[0] == [1, 2] and links[-1] == [2] and engine.outboxes[1].parked
