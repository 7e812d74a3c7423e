"""The journal keeps what it confirmed, and refuses what it cannot vouch for."""

import shutil
import sqlite3
import subprocess
import sys

import pytest

from happened.net import JournalError
from happened.net.journal import FORMAT, Identity, Journal

ALICE = Identity("alice", "ks", "{}", ("alice", "bob"))


def written(path, batches=50, size=2000):
    """A journal whose pages are all in its file, as after a clean end."""
    journal = Journal(path)
    journal.open(ALICE)
    for number in range(1, batches + 1):
        journal.append(number, bytes([number % 256]) * size)
    journal.close()
    return path


def load(path):
    journal = Journal(path)
    try:
        journal.open(ALICE)
        return journal.snapshot(), list(journal.batches())
    finally:
        journal.close()


def test_batches_come_back_in_order_and_the_incarnation_stays(tmp_path):
    journal = Journal(tmp_path / "j")
    incarnation = journal.open(ALICE)
    assert [journal.append(time, entries) for time, entries in ((7, b"one"), (8, b"two"))] == [1, 2]
    journal.close()
    journal = Journal(tmp_path / "j")
    assert journal.open(ALICE) == incarnation and len(incarnation) == 8
    assert journal.snapshot() is None
    assert list(journal.batches()) == [(7, b"one"), (8, b"two")]
    assert journal.append(9, b"three") == 3
    journal.close()
    assert Journal(tmp_path / "other").open(ALICE) != incarnation


def test_a_snapshot_counts_only_once_the_old_batches_may_go(tmp_path):
    journal = Journal(tmp_path / "j")
    journal.open(ALICE)
    journal.append(1, b"one")
    after = journal.append(2, b"two", b"state after two")
    journal.append(3, b"three")
    journal.close()
    assert load(tmp_path / "j") == (None, [(1, b"one"), (2, b"two"), (3, b"three")])
    journal = Journal(tmp_path / "j")
    journal.open(ALICE)
    journal.forget(after)
    assert journal.bytes == len(b"three")
    journal.close()
    assert load(tmp_path / "j") == (b"state after two", [(3, b"three")])


def test_compaction_keeps_the_file_small(tmp_path):
    journal = Journal(tmp_path / "j")
    journal.open(ALICE)
    for _ in range(30):
        for _ in range(10):
            journal.append(1, b"x" * 10_000)
        journal.forget(journal.append(1, b"", b"state"))
    journal.close()
    assert (tmp_path / "j").stat().st_size < 500_000


def test_a_newer_format_is_refused_and_left_as_it_was(tmp_path):
    path = written(tmp_path / "j")
    with sqlite3.connect(path) as db:
        db.execute(f"PRAGMA user_version = {FORMAT + 1}")
    db.close()
    before = path.read_bytes()
    with pytest.raises(JournalError, match=f"format {FORMAT + 1} by another happened.*nothing was changed"):
        Journal(path)
    assert path.read_bytes() == before


def test_a_database_of_something_else_is_refused(tmp_path):
    with sqlite3.connect(tmp_path / "j") as db:
        db.execute("CREATE TABLE accounts (name)")
    db.close()
    with pytest.raises(JournalError, match="database of something else"):
        Journal(tmp_path / "j")
    (tmp_path / "text").write_text("dear diary, " * 1000)
    with pytest.raises(JournalError, match="damaged"):
        Journal(tmp_path / "text")


def test_another_nodes_journal_is_refused(tmp_path):
    path = written(tmp_path / "j")
    for other in (
        ALICE._replace(name="bob"),
        ALICE._replace(protocol="bss"),
        ALICE._replace(members=("alice", "bob", "carol")),
    ):
        journal = Journal(path)
        with pytest.raises(JournalError, match="journal of a node whose"):
            journal.open(other)
        journal.close()


def test_a_second_process_is_refused_while_the_first_lives(tmp_path):
    first = Journal(tmp_path / "j")
    first.open(ALICE)
    code = (
        "import sys; from pathlib import Path; from happened.net.journal import Journal\n"
        "try: Journal(Path(sys.argv[1]))\n"
        "except Exception as error: print(error); sys.exit(7)"
    )
    second = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "j")], capture_output=True, text=True, timeout=60
    )
    assert second.returncode == 7 and "in use by another process" in second.stdout
    with pytest.raises(JournalError, match="in use"):
        Journal(tmp_path / "j")
    first.close()
    Journal(tmp_path / "j").close()


def test_a_flipped_bit_anywhere_is_an_error_or_changes_nothing(tmp_path, dice):
    """In the middle of a page of data, in SQLite's own structures, or in space that nothing uses."""
    path = written(tmp_path / "j")
    whole = load(path)
    data = path.read_bytes()
    found = 0
    for _ in range(150):
        damaged = bytearray(data)
        at = dice.randrange(len(data))
        damaged[at] ^= 1 << dice.randrange(8)
        copy = tmp_path / "damaged"
        copy.write_bytes(damaged)
        try:
            assert load(copy) == whole, f"bit of byte {at} changed what was read"
        except JournalError as error:
            assert str(copy) in str(error)
            found += 1
        for side in tmp_path.glob("damaged-*"):
            side.unlink()
    assert found > 100


@pytest.mark.parametrize("what", ["batch", "all batches to the snapshot", "snapshot"])
def test_missing_rows_are_an_error(tmp_path, what):
    path = written(tmp_path / "j")
    journal = Journal(path)
    journal.open(ALICE)
    _, _ = journal.snapshot(), list(journal.batches())
    journal.append(51, b"last", b"state")
    journal.close()
    with sqlite3.connect(path) as db:
        if what == "batch":
            db.execute("DELETE FROM batches WHERE number = 20")
        elif what == "snapshot":
            db.execute("DELETE FROM batches WHERE number < 20")
        else:
            db.execute("DELETE FROM batches WHERE number > 30")
    db.close()
    with pytest.raises(JournalError, match="missing"):
        load(path)


def test_a_full_disk_is_told_and_keeps_what_was_confirmed(tmp_path):
    journal = Journal(tmp_path / "j", max_pages=60)
    journal.open(ALICE)
    confirmed = 0
    with pytest.raises(JournalError, match="the disk is full"):
        while confirmed < 10_000:
            journal.append(1, b"x" * 5000)
            confirmed += 1
    journal.close()
    assert confirmed > 5
    assert load(tmp_path / "j") == (None, [(1, b"x" * 5000)] * confirmed)


def test_what_was_appended_survives_without_a_close(tmp_path):
    """The files as they are in the middle of a run, the write-ahead log included."""
    journal = Journal(tmp_path / "j")
    journal.open(ALICE)
    for number in range(20):
        journal.append(number, b"batch %d" % number)
        for side in tmp_path.glob("j*"):
            shutil.copy(side, tmp_path / side.name.replace("j", "copy", 1))
        assert len(load(tmp_path / "copy")[1]) == number + 1
        for side in tmp_path.glob("copy*"):
            side.unlink()
    journal.close()
