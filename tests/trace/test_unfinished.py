"""What a process that dies leaves can be gone on with or removed; what lives or is finished stays."""

import json
import os
import subprocess
import sys
import time

import pytest

from happened.cli import main
from happened.core.errors import CausalityError
from happened.trace.atomic import UNFINISHED, Mark, mark_of, resumable_directory, whole_directory
from happened.trace.store import any_path, files_below

DIES = """
import os, sys
from happened.trace.atomic import resumable_directory, whole_directory
from happened.trace.store import any_path

way, out, work = sys.argv[1:]
out, work = any_path(out), any_path(work) if work else None
if way == "whole":
    with whole_directory(out) as folder:
        (folder / "half").write_text("x")
        os._exit(9)
with resumable_directory(out, work) as (folder, place):
    (folder / "table").mkdir()
    (folder / "table" / "part").write_text("done")
    place.mkdir(parents=True, exist_ok=True)
    (place / "record").write_text("kept")
    os._exit(9)
"""


def die(out, work="", way="resumable"):
    done = subprocess.run([sys.executable, "-c", DIES, way, str(out), str(work)], check=False)
    assert done.returncode == 9


@pytest.fixture(params=["local", "store"])
def root(request, tmp_path):
    return tmp_path if request.param == "local" else any_path(request.getfixturevalue("bucket"))


def names(folder):
    beyond = len(str(folder))
    return [str(file)[beyond:].partition("?")[0].strip("/") for file in files_below(folder)]


@pytest.mark.parametrize("has_work", [False, True])
def test_what_a_dead_process_left_is_gone_on_with(root, has_work):
    out, work = root / "out", root / "work" if has_work else None
    die(out, work or "")
    assert root == out.parent
    with pytest.raises(CausalityError, match="--resume, remove what is left with `happened clean"):
        resumable_directory(out, work).__enter__()
    with resumable_directory(out, work, resume=True) as (folder, place):
        assert (folder / "table" / "part").read_text() == "done"
        assert (place / "record").read_text() == "kept"
        with pytest.raises(CausalityError, match=f"is being written by process {os.getpid()}"):
            resumable_directory(out, work, resume=True).__enter__()
    assert names(root) == ["out/table/part"]
    with pytest.raises(CausalityError, match="exists already"):
        resumable_directory(out, work, resume=True).__enter__()


def test_what_fails_is_kept_if_asked_for(root):
    for options in ({}, {"resume": True}):
        with pytest.raises(ZeroDivisionError), resumable_directory(root / "out", **options) as (folder, _):
            (folder / "part").write_text("done")
            1 / 0  # noqa: B018
        assert len(names(root)) == 2 * len(options)
    with resumable_directory(root / "out", resume=True) as (folder, _):
        assert (folder / "part").read_text() == "done"


def test_clean_removes_what_was_abandoned_and_nothing_else(root, capsys):
    die(root / "died", root / "work")
    die(root / "imported", way="whole")
    with whole_directory(root / "finished") as folder:
        (folder / "part").write_text("whole")
    with resumable_directory(root / "living", root / "work") as (folder, place):
        (place / "record").write_text("needed")
        assert main(["clean", str(root), "--json"]) == 0
        removed = json.loads(capsys.readouterr().out)["removed"]
        assert len(removed) == 3
        assert sum("work/happened-died" in path for path in removed) == 1
        assert (place / "record").exists()
        assert mark_of(folder).is_alive
    assert names(root) == ["finished/part"]
    assert main(["clean", str(root / "finished")]) == 0
    assert "nothing: no unfinished directory" in capsys.readouterr().out
    assert names(root) == ["finished/part"]


def test_clean_of_what_never_became_and_of_its_work(root, capsys):
    """By the names that --out and --work had."""
    for named in ("out", "work"):
        die(root / "out", root / "work")
        assert main(["clean", str(root / named)]) == 0
        assert "happened-out-" in capsys.readouterr().out
        main(["clean", str(root / "out")])
        assert names(root) == []


def test_of_another_machine_only_silence_tells(tmp_path, capsys):
    died = tmp_path / ".out.unfinished"
    died.mkdir()
    (died / UNFINISHED).write_text(json.dumps(Mark("elsewhere", 1, "1")._asdict()))
    assert mark_of(died).is_alive is None
    assert main(["clean", str(tmp_path)]) == 0
    assert died.exists()
    long_ago = time.time() - 3600 * 25
    os.utime(died / UNFINISHED, (long_ago, long_ago))
    assert main(["clean", str(tmp_path)]) == 0
    assert not died.exists()


def test_a_later_process_with_the_same_number_is_another(tmp_path):
    me = os.getpid()
    with resumable_directory(tmp_path / "out") as (folder, _):
        found = mark_of(folder)
        assert (found.pid, found.is_alive) == (me, True)
        assert not found._replace(started="1").is_alive
