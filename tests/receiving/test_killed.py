"""`happened stream --otlp` as a process that is killed: the next one has what it confirmed."""

import json
import random
import signal
import subprocess
import sys
import threading
from urllib.error import URLError
from urllib.request import Request, urlopen

import pytest

from receiving.running import PATIENCE, state, until
from receiving.test_otlp import SPAN, document


def start(out):
    (out / "live.json").unlink(missing_ok=True)
    words = ["stream", "--otlp", "--out", str(out), "--otlp-grpc", "off", "--otlp-http", "127.0.0.1:0"]
    process = subprocess.Popen(
        [sys.executable, "-m", "happened", *words, "--settle", "0.2", "--every", "0.1", "--window", "3600"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    until(lambda: state(out) or process.poll() is not None)
    assert process.poll() is None, process.communicate()
    return process, state(out)["listens"]["http"]


def send(address, number):
    """Send one span, and return whether it was confirmed."""
    span = SPAN | {"traceId": f"{number % 5 + 1:032x}", "spanId": f"{number + 1:016x}"}
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
