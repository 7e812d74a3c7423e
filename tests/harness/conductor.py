"""Runs the processes of one system, with a lane of the proxy between each of them and what it talks to.

A `World` starts, kills, stops and restarts processes, and keeps their journals and logs in one directory.
What harm is done when, `harms.py` says.
"""

import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.judge import Fault, Record, read_log
from harness.proxy import Address, Lane

PROGRAM = Path(__file__).with_name("children.py")
PATIENCE = 240.0  # seconds until something that must happen counts as not happening; machines may be busy
NAMES = ("alice", "bob", "carol", "dave")
SOON = 0.02  # seconds between two looks at a log


@dataclass(frozen=True, slots=True)
class Plan:
    """What runs, over what."""

    transport: str  # key, tls, nats (a key, and TLS to the broker), or nats-plain (a key alone)
    protocol: str
    promises: tuple[str, ...] = ("causal",)
    is_broadcast: bool = False
    members: tuple[str, ...] = NAMES[:3]
    pace: float = 0.04  # mean seconds between two sends of one process
    is_signed: bool = False  # origins sign their messages
    is_parking: bool = False  # outboxes are soon full, and go on on disk

    @property
    def has_broker(self) -> bool:
        return self.transport.startswith("nats")

    @property
    def name(self) -> str:
        more = [word for word, has in (("signed", self.is_signed), ("parking", self.is_parking)) if has]
        return "-".join((self.transport, self.protocol, *more))


class NeverHappened(AssertionError):
    """Something did not come about in time; the text says what."""


async def eventually(is_so: Callable[[], Any], what: str, patience: float = PATIENCE) -> None:
    end = time.monotonic() + patience
    while not is_so():
        if time.monotonic() > end:
            raise NeverHappened(f"{what}: not in {patience:.0f} s")
        await asyncio.sleep(SOON)


def make_secrets(directory: Path) -> None:
    """A shared key, and certificates for everybody and for a broker, as docs/runtime.md says to make them."""
    for command in (
        "node keys shared lab.key",
        "node keys authority --pki pki",
        f"node keys issue --pki pki {' '.join(NAMES)} broker",
    ):
        subprocess.run([sys.executable, "-m", "happened", *command.split()], cwd=directory, check=True)


class Broker:
    """A NATS server with JetStream and files of its own, that can be killed and started again; with TLS if it
    is told where certificates are."""

    def __init__(self, directory: Path, pki: Path | None) -> None:
        self._directory = directory
        self._tls = f'tls {{ cert_file: "{pki}/broker.pem", key_file: "{pki}/broker.key" }}' if pki else ""
        self.address: Address | None = None

    async def start(self) -> None:
        self._directory.mkdir(exist_ok=True)
        ports, settings = self._directory / "ports", self._directory / "nats.conf"
        shutil.rmtree(ports, ignore_errors=True)
        ports.mkdir()
        settings.write_text(f"""
            listen: 127.0.0.1:-1
            ports_file_dir: "{ports}"
            jetstream {{ store_dir: "{self._directory / "store"}" }}
            {self._tls}
        """)
        server = Path(sys.executable).with_name("nats-server")
        with (self._directory / "log").open("ab") as log:
            self._process = subprocess.Popen([server, "-c", settings], stdout=log, stderr=log)
        found: list[Path] = []
        await eventually(lambda: found.extend(ports.glob("*.ports")) or found, "the broker starts")
        await eventually(found[0].read_bytes, "the broker says where it listens")
        url = json.loads(found[0].read_bytes())["nats"][0]
        self.address = "127.0.0.1", int(url.rpartition(":")[2])

    def kill(self) -> None:
        self.address = None
        self._process.kill()
        self._process.wait()


class Member:
    """One process of the world, in all its lives."""

    def __init__(self, name: str, directory: Path) -> None:
        self.name = name
        self.directory = directory
        self.journal = directory / f"{name}.journal"
        self.log = directory / f"{name}.log"
        self.lives = 0
        self.process: subprocess.Popen[bytes] | None = None
        self.in_use = asyncio.Lock()  # held by the harm that is done to it
        self._read_to = 0
        self._records: list[Record] = []

    def records(self) -> list[Record]:
        """All complete lines so far; each is parsed once."""
        if not self.log.exists():
            return self._records
        with self.log.open("rb") as file:
            file.seek(self._read_to)
            news = file.read()
        whole = news[: news.rfind(b"\n") + 1]
        self._read_to += len(whole)
        for line in whole.splitlines():
            try:
                self._records.append(json.loads(line))
            except ValueError:
                continue  # empty, or cut off by a kill
        return self._records

    def find(self, what: str, since: int = 0) -> Record | None:
        return next((record for record in self.records()[since:] if record["what"] == what), None)

    def this_life(self, what: str) -> Record | None:
        """The last line of this kind that its present life has written."""
        for record in reversed(self.records()):
            if record["what"] == what:
                return record
            if record["what"] == "life":
                return None
        return None

    def has_begun(self) -> bool:
        life = self.this_life("life")
        return life is not None and life["number"] == self.lives

    def keys(self, what: str, since: int = 0) -> set[str]:
        return {record["key"] for record in self.records()[since:] if record["what"] == what}

    @property
    def address(self) -> Address | None:
        running = self.this_life("running")
        if running is None or self.process is None:
            return None
        host, _, port = running["listen"].rpartition(":")
        return host, int(port)

    def tell(self, command: str) -> None:
        assert self.process is not None and self.process.stdin is not None
        self.process.stdin.write(command.encode() + b"\n")
        self.process.stdin.flush()

    def kill(self) -> None:
        assert self.process is not None
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        self.process = None

    def journal_files(self) -> list[Path]:
        """The journal, and what of it is still in the write-ahead log."""
        return [path for path in (self.journal, Path(f"{self.journal}-wal")) if path.exists()]

    def move_journal(self, to: Path) -> None:
        to.mkdir()
        for path in self.journal_files():
            path.rename(to / path.name)
        Path(f"{self.journal}-shm").unlink(missing_ok=True)

    def restore_journal(self, source: Path) -> None:
        for path in self.journal_files():
            path.unlink()
        Path(f"{self.journal}-shm").unlink(missing_ok=True)
        for path in source.iterdir():
            shutil.copy2(path, self.directory / path.name)


class World:
    """The processes of a plan; journals and logs in `directory`, keys and certificates in `secrets`."""

    def __init__(self, plan: Plan, directory: Path, secrets: Path, seed: int) -> None:
        self.plan, self.directory, self.secrets, self.seed = plan, directory, secrets, seed
        self.members = {name: Member(name, directory) for name in plan.members}
        self.lanes: dict[tuple[str, str], Lane] = {}
        self.faults: list[Fault] = []
        self.broker: Broker | None = None
        self.is_quiet = False  # whether processes are to send nothing more
        self._peers: dict[str, dict[str, str]] = {}
        self._security: dict[str, dict[str, Any]] = {}

    async def __aenter__(self) -> "World":
        if self.plan.has_broker:
            pki = self.secrets / "pki" if self.plan.transport == "nats" else None
            self.broker = Broker(self.directory / "broker", pki)
            await self.broker.start()
        for name in self.members:
            await self._connect(name)
        await asyncio.gather(*(self.start(member) for member in self.members.values()))
        return self

    async def _connect(self, name: str) -> None:
        """Lanes from this process to all that it calls."""
        pki, key = str(self.secrets / "pki"), str(self.secrets / "lab.key")
        others = [other for other in self.members if other != name]
        if self.broker is not None:
            broker = self.broker
            lane = self.lanes[name, "broker"] = Lane(lambda: broker.address)
            has_tls = self.plan.transport == "nats"
            url = f"{'tls' if has_tls else 'nats'}://{await lane.open()}"
            self._security[name] = {"servers": [url], "tls": has_tls, "key": key, "pki": pki}
            self._peers[name] = dict.fromkeys(others, "")
            return
        self._security[name] = {"pki": pki} | ({"key": key} if self.plan.transport == "key" else {})
        self._peers[name] = {}
        for other in others:
            member = self.members[other]
            lane = self.lanes[name, other] = Lane(lambda member=member: member.address)
            self._peers[name][other] = await lane.open()

    async def __aexit__(self, *_: object) -> None:
        for member in self.members.values():
            if member.process is not None:
                member.kill()
        for lane in self.lanes.values():
            await lane.close()
        if self.broker is not None:
            self.broker.kill()

    # lives

    def spawn(
        self, member: Member, *, is_void: bool = False, log: Path | None = None
    ) -> subprocess.Popen[bytes]:
        settings = self.directory / f"{member.name}.json"
        settings.write_text(
            json.dumps(
                {
                    "name": member.name,
                    "life": member.lives,
                    "void": is_void,
                    "quiet": self.is_quiet,
                    "seed": self.seed,
                    "protocol": self.plan.protocol,
                    "broadcast": self.plan.is_broadcast,
                    "pace": self.plan.pace,
                    "signed": self.plan.is_signed,
                    "parking": self.plan.is_parking,
                    "journal": str(member.journal),
                    "log": str(log or member.log),
                    "peers": self._peers[member.name],
                    "security": self._security[member.name],
                }
            )
        )
        with (self.directory / f"{member.name}.stderr").open("ab") as errors:
            return subprocess.Popen(
                [sys.executable, PROGRAM, settings], stdin=subprocess.PIPE, stdout=errors, stderr=errors
            )

    async def start(self, member: Member) -> None:
        """A new life; returns when it takes part."""
        await self._begin(member)
        self.check_alive(member)

    async def start_old(self, member: Member) -> None:
        """A life on an old copy of the journal; returns when it runs, or has ended."""
        await self._begin(member, is_void=True)

    async def _begin(self, member: Member, *, is_void: bool = False) -> None:
        while True:
            member.lives += 1
            process = member.process = self.spawn(member, is_void=is_void)
            who = f"{member.name}, life {member.lives},"
            await eventually(lambda p=process: member.has_begun() or p.poll() is not None, f"{who} begins")
            await eventually(
                lambda p=process: member.this_life("running") or p.poll() is not None, f"{who} runs"
            )
            if not self._could_not_reach_broker(member):
                return

    async def see_it_stop(self, member: Member) -> None:
        """On an old copy: it must end by itself, and say why."""
        process = member.process
        assert process is not None
        try:
            await eventually(lambda: process.poll() is not None, f"{member.name} stops on an old copy")
        except NeverHappened as error:
            self.faults.append(Fault("went on", str(error)))
        member.kill()
        stopped = member.this_life("stopped")
        if not stopped or "old copy" not in stopped["why"]:
            self.faults.append(
                Fault("went on", f"{member.name} did not say that its journal is old: {stopped}")
            )

    def _could_not_reach_broker(self, member: Member) -> bool:
        """A node that gets no answer when it starts ends, and is started again; harm may hit each attempt."""
        stopped = member.this_life("stopped")
        return self.broker is not None and stopped is not None and "no answer in" in stopped["why"]

    def check_alive(self, member: Member) -> None:
        process = member.process
        if process is not None and process.poll() is not None:
            stopped = member.this_life("stopped")
            why = stopped["why"] if stopped else f"exit code {process.returncode}, see {member.name}.stderr"
            raise NeverHappened(f"{member.name} ended by itself in life {member.lives}: {why}")

    async def close(self, member: Member) -> None:
        """Let it end in its own time."""
        process = member.process
        assert process is not None
        self.check_alive(member)
        member.tell("close")
        await eventually(lambda: process.poll() is not None, f"{member.name} closes")
        if process.returncode != 0:
            self.check_alive(member)
        member.process = None

    def stop(self, member: Member) -> None:
        assert member.process is not None
        os.kill(member.process.pid, signal.SIGSTOP)

    def go_on(self, member: Member) -> None:
        assert member.process is not None
        os.kill(member.process.pid, signal.SIGCONT)

    # the end

    async def settle(self, lives: int) -> None:
        """Nothing more is sent, and all comes to rest, in this life and in so many more of everybody."""
        self.is_quiet = True
        for member in self.members.values():
            self.check_alive(member)
            member.tell("quiet")
        await self._rest()
        for _ in range(lives):
            for member in self.members.values():
                await self.close(member)
                await self.start(member)
            await self._rest()
        for member in self.members.values():
            await self.close(member)

    async def _rest(self) -> None:
        """Until everybody has received all that was sent to it, and has nothing left to do, twice running."""
        end = time.monotonic() + PATIENCE
        still = 0
        while still < 2 and time.monotonic() < end:
            still = still + 1 if await self._is_at_rest() else 0
        if still < 2:
            reports = {name: member.this_life("report") for name, member in self.members.items()}
            self.faults.append(Fault("stuck", f"no rest in {PATIENCE:.0f} s: {json.dumps(reports)}"))

    async def _is_at_rest(self) -> bool:
        reports = {}
        for name, member in self.members.items():
            self.check_alive(member)
            before = len(member.records())
            member.tell("report")
            await eventually(lambda m=member, n=before: m.find("report", n), f"{name} reports")
            reports[name] = member.find("report", before)
        return all(
            not report["left"]
            and all(sent == reports[peer]["links"][name][1] for peer, (sent, _) in report["links"].items())
            for name, report in reports.items()
        )

    def logs(self) -> dict[str, list[Record]]:
        return {name: read_log(member.log) for name, member in self.members.items()}
