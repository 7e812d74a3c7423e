"""`happened stream --otlp` as a process that is killed: the next one has what it confirmed."""

import json
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from urllib.error import URLError
from urllib.request import Request, urlopen

import pyarrow.parquet as pq
import pytest

from receiving.running import PATIENCE, state, until
from receiving.test_otlp import SPAN, document

KILLS = 10


def start(out, window=3600.0):
    (out / "live.json").unlink(missing_ok=True)
    words = ["stream", "--otlp", "--out", str(out), "--otlp-grpc", "off", "--otlp-http", "127.0.0.1:0"]
    words += ["--settle", "0.2", "--every", "0.1", "--remember", str(window)]
    process = subprocess.Popen(
        [sys.executable, "-m", "happened", *words],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    until(lambda: state(out) or process.poll() is not None)
    assert process.poll() is None, process.communicate()
    return process, state(out)["listens"]["http"]


def send(address, number, traces=5):
    """Send one span, of one of so many traces, and return whether it was confirmed."""
    span = SPAN | {"traceId": f"{number % traces + 1:032x}", "spanId": f"{number + 1:016x}"}
    request = Request(address, json.dumps(document(span)).encode(), {"Content-Type": "application/json"})
    try:
        with urlopen(request, timeout=PATIENCE) as answer:
            return answer.status == 200
    except (URLError, OSError):
        return False


def killed_at_random(tmp_path, random_, lives):
    confirmed, number = set(), 0
    for life in range(lives):
        process, address = start(tmp_path)
        try:
            until(lambda: state(tmp_path)["counts"]["spans"] >= len(confirmed))
            killer = threading.Timer(random_.uniform(0.05, 0.6), process.kill)
            killer.start()
            while send(address, number):
                confirmed.add(number)
                number += 1
            assert process.wait(PATIENCE) == -signal.SIGKILL
            # The last one may or may not have been kept; its sender sends it again.
        finally:
            killer.cancel()
            process.kill()
            process.communicate()
        assert confirmed, life
    return confirmed, number


def ends_well(out, confirmed, number):
    process, address = start(out)
    try:
        assert send(address, number)
        counts = until(
            lambda: (
                (counts := state(out)["counts"])["spans"] >= len(confirmed) + 1
                and state(out).get("totals", {}).get("events") == 2 * counts["spans"]
                and counts
            )
        )
        assert counts["spans"] == len({*confirmed, number})
        process.send_signal(signal.SIGTERM)
        told, said = process.communicate(timeout=PATIENCE)
    finally:
        process.kill()
    assert process.returncode == 3, said  # no messages: undecided
    assert f"spans: {counts['spans']:,}" in told


def test_what_a_killed_receiver_confirmed_is_told_by_the_next_one(tmp_path, seed):
    ends_well(tmp_path, *killed_at_random(tmp_path, random.Random(seed), lives=1))


@pytest.mark.slow
def test_twenty_kills_lose_nothing(tmp_path, seed):
    confirmed, number = killed_at_random(tmp_path, random.Random(seed), lives=20)
    assert len(confirmed) > 100
    ends_well(tmp_path, confirmed, number)


@pytest.mark.slow
def test_kills_while_traces_settle_lose_none_and_double_none(tmp_path, seed):
    """Each span is a trace, which leaves the window half a second after it came, so that parts are written
    all the time. Half of the kills come when one begins to be written, and the others whenever they do."""
    random_ = random.Random(seed)
    folder, confirmed, number, caught = tmp_path / "settled", set(), 0, []

    def killed(process, moment, seen):
        writing = moment is None
        deadline = time.monotonic() + (PATIENCE if writing else moment)
        while time.monotonic() < deadline:
            if writing and {*folder.glob(".part-*"), *folder.glob("part-*")} - seen:
                caught.append(moment)
                break
            time.sleep(0.001)
        process.kill()

    for life in range(KILLS):
        process, address = start(tmp_path, window=0.5)
        moment = None if life % 2 else random_.uniform(0.05, 1.5)
        seen = {*folder.glob(".part-*"), *folder.glob("part-*")}
        killer = threading.Thread(target=killed, args=(process, moment, seen))
        killer.start()
        try:
            while send(address, number, traces=10**9):
                confirmed.add(number)
                number += 1
            assert process.wait(PATIENCE) == -signal.SIGKILL
            number += 1  # it may have been kept or not
        finally:
            process.kill()
            process.communicate()
            killer.join()
    process, address = start(tmp_path, window=0.5)
    try:
        until(lambda: not state(tmp_path)["counts"]["spans"])
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=PATIENCE)
    finally:
        process.kill()
    settled = [row for part in folder.glob("part-*") for row in pq.read_table(part).to_pylist()]
    times = Counter(row["computation"] for row in settled)
    print(f"{len(confirmed)} traces confirmed, {len(times)} settled in {len([*folder.glob('part-*')])} parts")
    assert {*times.values()} == {2}  # a span begins and ends
    assert {f"{each + 1:032x}" for each in confirmed} <= {*times} <= {f"{n + 1:032x}" for n in range(number)}
    assert len(caught) == KILLS // 2
