"""What `happened analyze` says of the traces that real processes left behind."""

import json
import subprocess
import sys

FAULTS = ("lost", "duplicated", "misdelivered", "never_sent")


def judge_on_spark(directory, order, events, messages):
    """Analyze the trace in a cluster's directory; assert that nothing of its `order` is violated."""
    command = [sys.executable, "-m", "happened", "analyze", str(directory / "trace")]
    command += ["--out", str(directory / "answers"), "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=900)
    assert done.returncode <= 1, done.stderr  # 1: some order is violated, which the protocol may not claim
    summary = json.loads(done.stdout)
    print(summary)
    assert (summary["events"], summary["messages"]) == (events, messages)
    assert summary["deliveries_judged"] >= messages
    for fault in (*(f"{each}_violations" for each in order.split("-")), *FAULTS):
        assert summary[fault] == 0, fault
