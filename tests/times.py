"""What the tests cost, by room and by test (`make test-times`): CPU seconds, and seconds on the clock.

CPU seconds are those of the test's process and of all processes that it started, which the kernel counts also
for those that have ended. They depend little on what else runs on the machine; seconds on the clock do.
"""

import ctypes
import os
import time
from collections import defaultdict
from pathlib import Path

import pytest

SLOWEST = 30
TICK = os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 100
COST = "cost"
SUBREAPER = 36  # of prctl: who is orphaned among the descendants becomes a child of this process


def spent():
    """CPU seconds of this process and its descendants so far; without /proc, of those that have ended."""
    children, ticks = defaultdict(list), {}
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
        except OSError:  # it has just ended
            continue
        children[int(fields[1])].append(int(entry.name))
        ticks[int(entry.name)] = sum(map(int, fields[11:15]))
    if not ticks:
        return sum(os.times()[:4])
    total, found = 0, [os.getpid()]
    while found:
        process = found.pop()
        total += ticks.get(process, 0)
        found += children[process]
    return total / TICK


class Times:
    """A plugin that adds up what each test cost and prints it when all have run."""

    def __init__(self):
        if Path("/proc").is_dir():  # a JVM outlives the process that started it, and must be counted too
            ctypes.CDLL(None).prctl(SUBREAPER, 1, 0, 0, 0)
        self.cpu = self.clock = 0.0
        self.costs = {}

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_setup(self, item):
        if not self.clock:  # what importing the tests cost belongs to no test
            self.cpu, self.clock = spent(), time.monotonic()
        return (yield)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_teardown(self, item):
        try:
            return (yield)
        finally:
            cpu, clock = spent(), time.monotonic()
            # A child that nobody waited for takes its time with it, so that the sum may fall.
            item.user_properties.append((COST, (max(0.0, cpu - self.cpu), clock - self.clock)))
            self.cpu, self.clock = cpu, clock

    def pytest_runtest_logreport(self, report):
        if report.when == "teardown":
            self.costs[report.nodeid] = dict(report.user_properties).get(COST, (0.0, 0.0))

    def pytest_terminal_summary(self, terminalreporter):
        rooms = defaultdict(list)
        for test, cost in self.costs.items():
            rooms[_room(test)].append(cost)
        terminalreporter.section("what the tests cost, in seconds")
        write = terminalreporter.write_line
        write(f"{'room':<24}{'tests':>8}{'CPU':>10}{'clock':>10}")
        for room, costs in sorted(rooms.items(), key=lambda found: -_cpu(found[1])):
            write(f"{room:<24}{len(costs):>8}{_cpu(costs):>10.1f}{sum(clock for _, clock in costs):>10.1f}")
        every = [*self.costs.values()]
        write(f"{'all':<24}{len(every):>8}{_cpu(every):>10.1f}{sum(clock for _, clock in every):>10.1f}")
        write(f"the {SLOWEST} that cost most CPU:")
        for test, (cpu, clock) in sorted(self.costs.items(), key=lambda found: -found[1][0])[:SLOWEST]:
            write(f"{cpu:>10.1f}{clock:>10.1f}  {test}")
        write(f"the {SLOWEST} that took longest:")
        for test, (cpu, clock) in sorted(self.costs.items(), key=lambda found: -found[1][1])[:SLOWEST]:
            write(f"{cpu:>10.1f}{clock:>10.1f}  {test}")
        if self.costs and (where := os.environ.get("HAPPENED_TIMES")):
            lines = [f"{cpu:.2f}\t{clock:.2f}\t{test}\n" for test, (cpu, clock) in self.costs.items()]
            Path(where).write_text("".join(lines), encoding="utf-8")


def _cpu(costs):
    return sum(cpu for cpu, _ in costs)


def _room(test):
    """The folder below tests/ that a test is in."""
    parts = test.partition("::")[0].split("/")
    return "/".join(parts[:2]) if len(parts) > 2 else "tests"
