"""The log of export requests: what was confirmed is there, and what was half written is not."""

import math
import os
import struct
import threading
import time

import pytest

from happened.core.errors import CausalityError
from happened.receiving.export_requests import Encoding
from happened.receiving.span_log import SpanLog

PROTOBUF, JSON = Encoding.PROTOBUF, Encoding.JSON


def bodies(log):
    return [kept.body for kept in log.recent(0)]


def test_what_was_appended_is_there_after_a_restart(tmp_path):
    log = SpanLog(tmp_path)
    for number in range(5):
        log.append(PROTOBUF, b"p%d" % number)
        log.append(JSON, b"{%d}" % number)
    log.close()
    again = SpanLog(tmp_path)
    assert sorted(bodies(again)) == sorted([b"p%d" % n for n in range(5)] + [b"{%d}" % n for n in range(5)])
    again.close()


@pytest.mark.parametrize("encoding", Encoding)
def test_a_request_that_was_cut_anywhere_is_cut_off_and_those_before_it_stay(tmp_path, encoding):
    log = SpanLog(tmp_path)
    log.append(encoding, b"first")
    (file,) = tmp_path.glob("spans-*")
    whole = file.stat().st_size
    log.append(encoding, b"second, longer")
    log.close()
    data = file.read_bytes()
    for cut in range(whole, len(data)):
        file.write_bytes(data[:cut])
        log = SpanLog(tmp_path)
        assert bodies(log) == [b"first"], cut
        log.append(encoding, b"third")
        assert bodies(log) == [b"first", b"third"], cut
        log.close()
        for later in tmp_path.glob("spans-*"):
            if later != file:
                later.unlink()


def test_zeros_that_a_loss_of_power_left_are_no_requests(tmp_path):
    log = SpanLog(tmp_path)
    log.append(PROTOBUF, b"first")
    log.close()
    (file,) = tmp_path.glob("spans-*")
    with file.open("ab") as left:
        left.write(bytes(100))
    log = SpanLog(tmp_path)
    assert (bodies(log), file.stat().st_size) == ([b"first"], 4 + len(b"first"))
    log.close()


def test_a_file_of_which_nothing_was_whole_is_removed(tmp_path):
    (tmp_path / "spans-000000007.otlp").write_bytes(struct.pack(">I", 100) + b"half")
    log = SpanLog(tmp_path)
    assert list(tmp_path.glob("spans-*")) == []
    log.append(PROTOBUF, b"next")
    assert [path.name for path in tmp_path.glob("spans-*")] == ["spans-000000008.otlp"]
    log.close()


def test_files_are_rotated_and_old_ones_forgotten_but_for_the_one_that_is_written(tmp_path):
    log = SpanLog(tmp_path, most_bytes=100)
    for number in range(10):
        log.append(PROTOBUF, bytes(40) + b"%d" % number)
    files = sorted(tmp_path.glob("spans-*"))
    assert len(files) == 5
    for file in files:
        os.utime(file, (1000, 1000))
    assert log.forget(2000) == 4
    assert sorted(tmp_path.glob("spans-*")) == files[-1:]
    log.close()


def test_a_file_that_was_begun_before_what_is_kept_is_not_added_to(tmp_path):
    """However little comes, it is removed some day."""
    log = SpanLog(tmp_path)
    log.append(PROTOBUF, b"first")
    begun = log.begun(0.0)
    assert log.forget(begun) == 0
    log.append(PROTOBUF, b"second")
    (file,) = tmp_path.glob("spans-*")
    os.utime(file, (begun + 10, begun + 10))
    assert log.forget(begun + 5) == 0
    log.append(PROTOBUF, b"third")
    assert file.stat().st_mtime == begun + 10 and len(list(tmp_path.glob("spans-*"))) == 2
    log.close()
    # Of files that others have written it is not known when they were begun.
    log = SpanLog(tmp_path)
    assert log.begun(0.0) == 0.0 and log.begun(begun + 60) == math.inf
    log.close()


def test_requests_that_come_at_once_share_a_sync_and_are_all_there(tmp_path, monkeypatch):
    """While the first is being synced, the others write: their syncs become one."""
    log = SpanLog(tmp_path)
    log.append(PROTOBUF, b"before")
    syncs, begun, go_on, real = [], threading.Event(), threading.Event(), os.fsync

    def slow(file):
        syncs.append(file)
        begun.set()
        assert go_on.wait(10)
        real(file)

    monkeypatch.setattr(os, "fsync", slow)
    threads = [threading.Thread(target=log.append, args=(PROTOBUF, b"%d" % n)) for n in range(20)]
    threads[0].start()
    assert begun.wait(10)
    size = next(tmp_path.glob("spans-*")).stat().st_size
    for thread in threads[1:]:
        thread.start()
    while next(tmp_path.glob("spans-*")).stat().st_size < size + sum(
        4 + len(b"%d" % n) for n in range(1, 20)
    ):
        assert all(thread.is_alive() for thread in threads), "somebody was told that it is on disk"
    time.sleep(0.3)  # the last to write may not have come to wait yet
    go_on.set()
    for thread in threads:
        thread.join(10)
    assert len(syncs) == 2
    assert sorted(bodies(log)) == sorted([b"before", *(b"%d" % n for n in range(20))])
    log.close()


def test_after_a_sync_that_failed_nothing_of_that_file_is_confirmed_and_another_is_begun(
    tmp_path, monkeypatch
):
    log = SpanLog(tmp_path)
    log.append(PROTOBUF, b"good")
    real = os.fsync

    def broken(file):
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "fsync", broken)
    with pytest.raises(OSError):
        log.append(PROTOBUF, b"lost")
    monkeypatch.setattr(os, "fsync", real)
    log.append(PROTOBUF, b"again")
    assert len(list(tmp_path.glob("spans-*"))) == 2
    assert bodies(log)[-1] == b"again"
    log.close()


def test_a_disk_that_is_full_leaves_no_half_request(tmp_path, monkeypatch):
    log = SpanLog(tmp_path)
    log.append(PROTOBUF, b"good")
    real = os.write

    def half(file, data):
        if len(data) < 10:
            raise OSError(28, "No space left on device")
        return real(file, data[: len(data) // 2])

    monkeypatch.setattr(os, "write", half)
    with pytest.raises(OSError):
        log.append(PROTOBUF, bytes(range(100)))
    monkeypatch.setattr(os, "write", real)
    log.append(PROTOBUF, b"again")
    assert bodies(log) == [b"good", b"again"]
    log.close()


def test_two_receivers_do_not_write_to_one_directory(tmp_path):
    log = SpanLog(tmp_path)
    with pytest.raises(CausalityError, match="another receiver"):
        SpanLog(tmp_path)
    log.close()
    SpanLog(tmp_path).close()
