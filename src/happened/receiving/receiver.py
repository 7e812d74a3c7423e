"""A running receiver: two servers that take in spans, and a loop that judges them and writes the results.

OUT gets spans/ (the log), trace/ and the tables of last_minutes, page.html, and live.json: the rules, the
addresses the receiver listens on, counts of spans and requests, the judgement and the number of its round.
"""

import json
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from ..ask.history import printable
from ..core.errors import CausalityError
from ..report.live_page import live_page
from ..trace.atomic import whole_file
from .intake import Intake, SpanWindow, Version, WindowRules
from .last_minutes import LastMinutes, Told, assemble, groups_of, load_kernels
from .otlp_http import PATH, HttpReceiver
from .span_log import SettledTrace, SpanLog

if TYPE_CHECKING:
    from .otlp_grpc import GrpcReceiver

STEPS = 10  # how often per window traces leave it; more steps would write more parts of the settled trace
SHARE = 4  # judging may take at most one part in SHARE of the time
REMEMBERED = 100_000  # violations remembered, so that each is reported once


class Address(NamedTuple):
    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class Settings:
    """grpc, http: where to listen, None: not at all; rules: the window's; every: seconds between rounds;
    keep: seconds for which the log and the settled parts are kept."""

    grpc: Address | None
    http: Address | None
    rules: WindowRules = field(default_factory=WindowRules)
    every: float = 1.0
    keep: float = 86_400.0


class Receiver:
    """Creating it opens the addresses and takes in the last minutes of the log; `start` serves.

    violations   how many early deliveries were reported so far, each once
    tell         called with a line for each early delivery, and for what the receiver does
    """

    def __init__(self, out: Path, settings: Settings, tell: Callable[[str], object] = lambda line: None):
        self._out = out
        self._settings = settings
        self._tell = tell
        self._log = SpanLog(out / "spans")
        self._intake = Intake(self._log, SpanWindow(settings.rules))
        self._minutes = LastMinutes()
        self._settled = SettledTrace(out / "settled")
        self._settle_next = 0.0
        self._seen: dict[tuple[str, ...], None] = {}
        self._shown: tuple[tuple[Version, ...], int] | None = None
        self._round = 0
        self._ending = threading.Event()
        self.violations = 0
        self.told: Told | None = None
        self.addresses: dict[str, str] = {}
        load_kernels()
        self._servers = self._listen()
        gone, since = self._settled.known()
        if again := self._intake.replay(since, gone):
            tell(f"{again:,} requests of the last minutes are taken from {out / 'spans'}")

    def _listen(self) -> "list[HttpReceiver | GrpcReceiver]":
        servers: list[HttpReceiver | GrpcReceiver] = []
        try:
            if (at := self._settings.grpc) is not None:
                servers.append(grpc := _grpc_receiver(self._intake, at))
                self.addresses["grpc"] = str(Address(at.host, grpc.port))
            if (at := self._settings.http) is not None:
                servers.append(http := HttpReceiver(self._intake, *at))
                self.addresses["http"] = f"http://{Address(at.host, http.port)}{PATH}"
        except OSError as error:
            raise CausalityError(f"HTTP cannot listen on {at}: {error.strerror or error}") from None
        return servers

    def start(self) -> None:
        for server in self._servers:
            server.start()
        self.look()

    def run(self) -> None:
        """Judge the spans again and again, until another thread calls `end`."""
        while not self._ending.wait(self._settings.every):
            began = time.monotonic()
            self.look()
            self._ending.wait((time.monotonic() - began) * (SHARE - 1))

    def end(self) -> None:
        self._ending.set()

    def close(self) -> None:
        """Stop the servers and judge once more; all confirmed requests are in the log."""
        for server in self._servers:
            server.stop()
        self.look()
        self._log.close()

    def look(self) -> None:
        """One round: judge and write the results if traces have ended or left, or spans were rejected."""
        self._settle()
        now, ended = self._intake.ended()
        shown = tuple(ended), self._intake.rejected
        if shown != self._shown:
            self._shown = shown
            self._round += 1
            self.told = self._minutes.tell(ended, [*self._intake.left_out])
            self.told.write(self._out)
            self._tell_new(self.told)
        self._write_state(now)
        # Keep requests of traces that are not in a part yet: without the log a crash would lose them.
        self._log.forget(min(now - self._settings.keep, self._intake.since()))
        # Keep parts as long as the log has their traces: they say which ones are not to be taken in again.
        self._settled.forget(min(now - self._settings.keep, self._log.begun(self._settled.since)))

    def _settle(self) -> None:
        """Settle the traces that, like all those judged together with them, were silent for a window."""
        if time.monotonic() < self._settle_next:
            return
        self._settle_next = time.monotonic() + self._settings.rules.window / STEPS
        traces = self._intake.if_any_silent()
        names, _ = groups_of(traces)
        leaving = {group: names[group] for group in self._intake.let_go(names)}
        for group, assembled in assemble(leaving, traces).items():
            self._settled.add((trace for trace, _ in sorted(group)), assembled.rows)
        try:
            self._settled.write(self._intake.since())
        except OSError as error:
            self._tell(f"{self._out / 'settled'} cannot be written ({error.strerror or error}): tried again")

    def _tell_new(self, told: Told) -> None:
        for row in told.tables["violations"].to_pylist():
            key = (row["process"], row["early"], row["overtaken"])
            if key not in self._seen:
                self._seen[key] = None
                self.violations += 1
                said = f"{row['process']} delivered {row['early']} before {row['overtaken']}"
                self._tell(f"too early: {printable(said)}")
        while len(self._seen) > REMEMBERED:
            del self._seen[next(iter(self._seen))]

    def counts(self) -> dict[str, int]:
        traces = len(self._shown[0]) if self._shown is not None else 0
        more = {"settled_traces": self._settled.traces, "violations_told": self.violations}
        return {**self._intake.counts(), "ended_traces": traces, **more}

    def _write_state(self, now: float) -> None:
        counts, told = self.counts(), self.told
        state: dict[str, Any] = {
            "round": self._round,
            "at": now,
            "listens": self.addresses,
            "rules": asdict(self._settings.rules),
            "counts": counts,
        }
        if told is not None:
            judged: Mapping[str, int] = told.totals
            state |= {"sentence": told.judgement.sentence, "outcome": told.judgement.outcome.name.lower()}
            state["totals"] = dict(judged)
            _replace(self._out / "page.html", live_page(told.judgement, told.tables, counts, now))
        _replace(self._out / "live.json", json.dumps(state, indent=2) + "\n")


def _grpc_receiver(intake: Intake, at: Address) -> "GrpcReceiver":
    """Imports gRPC only here, so that its package is needed only where gRPC is used."""
    try:
        from .otlp_grpc import GrpcReceiver
    except ModuleNotFoundError as error:
        raise CausalityError(
            f"{error.name} is not installed; install it with: pip install 'happened[otlp]', or receive over "
            "HTTP alone: --otlp-grpc off"
        ) from None
    return GrpcReceiver(intake, *at)


def _replace(path: Path, text: str) -> None:
    with whole_file(path) as unfinished:
        unfinished.write_text(text, encoding="utf-8")
