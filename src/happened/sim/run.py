"""One simulated run from parameters that fit in a JSON object, and the directory it leaves behind.

    DIR/trace/part-*.parquet             what happened
    DIR/ledger/transmissions.parquet     what each transmission carried
    DIR/summary.json                     every parameter, the totals, and what was not delivered

The summary is written last: a directory without one is a run that did not end. Until then trace and ledger
are marked as unfinished, so that `happened clean DIR` removes what a run left that was killed.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

from .. import tracking
from ..core.errors import LocalProtocolError
from ..ordering import DEFAULT, create, protocols
from ..trace import TraceWriter
from ..trace.atomic import UNFINISHED, mark
from ..trace.store import any_path, remove_tree
from .ledger import Ledger
from .narrator import Narrator
from .network import Network
from .playing import MOST_PROCESSES
from .recorder import RunRecorder
from .riders import Riders
from .scenes import document
from .simulation import Simulation, Undelivered
from .story import explained, numbered
from .terrain import Terrain
from .tracker_narrator import TrackerNarrator
from .tracker_story import NOTATION
from .workload import Workload, cast_of

OURS = ("trace/part-*.parquet", "ledger/transmissions.parquet", "summary.json", "story.html")
PARTS = ("trace", "ledger")
MOST_TOLD = 100
"""Messages of a run that a story is told of: each is several steps, and a person reads them."""
MOST_ARRIVALS = 1_000
"""The same of messages times processes, which bounds the steps where nothing is relayed."""


@dataclass(frozen=True, slots=True)
class Parameters:
    """All that decides a run: the same parameters give the same events."""

    seed: int
    protocol: str = DEFAULT
    processes: int = 10
    messages: int = 10_000  # in all
    workload: Workload = field(default_factory=Workload)
    network: Network = field(default_factory=Network)
    tracker: str | None = None  # timestamps relevant events, riding on the messages
    relevant: float = 0.1  # probability of a relevant event after a send or a delivery, with a tracker
    terrain: Terrain | None = None  # its applications are the processes

    def __post_init__(self) -> None:
        if self.processes < 2:
            raise LocalProtocolError(f"a run needs at least two processes, not {self.processes}")
        if self.messages < 1:
            raise LocalProtocolError(f"a run needs at least one message, not {self.messages}")
        if self.terrain is not None:
            self._check_terrain(self.terrain)
        for partition in self.network.partitions:
            if max(partition.island) >= self.processes:
                raise LocalProtocolError(
                    f"partition {partition} cuts off p{max(partition.island)}; "
                    f"the processes are p0 to p{self.processes - 1}"
                )
        self._check_facts()
        if self.tracker is not None:
            self._check_tracker(self.tracker)

    def _check_terrain(self, terrain: Terrain) -> None:
        if self.processes != terrain.applications:
            raise LocalProtocolError(
                f"{terrain.source} has {terrain.applications} processes that send, not {self.processes}"
            )
        for asked, what in ((self.network.partitions, "partitions"), (self.tracker, "a tracker")):
            if asked:
                raise LocalProtocolError(f"{what} and a topology are not simulated together; leave one out")

    def _check_tracker(self, tracker: str) -> None:
        tracking.create(tracker, 0, self.processes)
        if not 0 <= self.relevant <= 1:
            raise LocalProtocolError(f"relevant events have a probability in 0 … 1, not {self.relevant}")
        tracking.check_deliveries(tracker, protocols()[self.protocol].order, self.protocol)

    def _check_facts(self) -> None:
        known = protocols()
        if self.protocol not in known:
            names = ", ".join(sorted(known))
            raise LocalProtocolError(f"no ordering protocol is called {self.protocol!r}; there are: {names}")
        facts = known[self.protocol]
        cast = cast_of(self.workload.pattern)
        if cast not in facts.assumes.casts:
            offered = ", ".join(sorted(facts.assumes.casts))
            raise LocalProtocolError(
                f"pattern {self.workload.pattern!r} is {cast}; {self.protocol} offers only {offered}"
            )
        if facts.assumes.fifo_links and not self.network.fifo:
            raise LocalProtocolError(f"{self.protocol} needs FIFO links: ask for a FIFO network (--fifo)")

    def as_json(self) -> dict[str, Any]:
        network = {
            **asdict(self.network),
            "delay": str(self.network.delay),
            "partitions": [str(partition) for partition in self.network.partitions],
        }
        told = {**asdict(replace(self, terrain=None)), "network": network}
        del told["terrain"]
        return told | ({"topology": self.terrain.source} if self.terrain is not None else {})

    @property
    def names(self) -> Sequence[str]:
        if self.terrain is not None:
            return self.terrain.names
        return [f"p{process}" for process in range(self.processes)]


def simulate(
    parameters: Parameters,
    out: Path | None = None,
    *,
    units: bool = False,
    force: bool = False,
    story: bool = False,
    progress: Callable[[int], object] | None = None,
) -> dict[str, Any]:
    """Simulate, and return the summary; with `out`, leave trace, ledger and summary there.

    `units` records the units every arriving message carries, for `check --necessary` to compare. `story` adds
    what each step did to the summary that is returned, under that name: of the tracker, where there is one.
    """
    tell = _Storyteller(parameters) if story else None
    if out is None:
        return _run(parameters, Ledger(), None, tell, progress) | (tell.told() if tell else {})
    is_new = not out.exists()
    claim(out, force=force)
    parts = [out / name for name in PARTS]
    try:
        for part in parts:
            part.mkdir(exist_ok=True)
            mark(part)
        with (
            Ledger(out / "ledger" / "transmissions.parquet") as ledger,
            TraceWriter(out / "trace") as writer,
        ):
            summary = _run(
                parameters,
                ledger,
                RunRecorder(writer, units=units, tracker=parameters.tracker or "", names=parameters.names),
                tell,
                progress,
            )
    except BaseException:  # half a run would look like one in which messages were lost
        for part in parts:
            remove_tree(part)
        if is_new:
            out.rmdir()
        raise
    for part in parts:
        (part / UNFINISHED).unlink()
    (out / "summary.json").write_text(json.dumps(summary, indent=2, sort_keys=True) + "\n")
    return summary | (tell.told() if tell else {})


class _Storyteller:
    """Tells the story of one small run."""

    def __init__(self, parameters: Parameters) -> None:
        terrain, protocol = parameters.terrain, parameters.protocol
        processes = parameters.processes if terrain is None else terrain.processes(protocol)
        messages = parameters.messages
        for what, count, most in (
            ("messages", messages, MOST_TOLD),
            ("processes", processes, MOST_PROCESSES),
            ("messages times processes", messages * processes, MOST_ARRIVALS),
        ):
            if count > most:
                raise LocalProtocolError(
                    f"a story is told of at most {most:,} {what}, and this run has {count:,}: ask for fewer, "
                    "as in --messages 20 --processes 5, or leave --story out"
                )
        self._parameters = parameters
        self._names = list(parameters.names)[:processes]
        self._narrator: Narrator | None = None

    def listen(self, simulation: Simulation, riders: Riders | None) -> None:
        """Be told what happens from now on."""
        self._machines = simulation.machines
        if riders is None or self._parameters.tracker is None:
            self._narrator = simulation.narrator = Narrator(simulation.machines)
            self._scenes = self._narrator.scenes
        else:
            self._scenes = (told := TrackerNarrator(self._parameters.tracker, riders.trackers)).scenes
            simulation.tracker_narrator = told

    def told(self) -> dict[str, Any]:
        protocol, tracker = self._parameters.protocol, self._parameters.tracker
        how = explained(protocol, self._machines) if tracker is None else NOTATION
        what = f"{self._parameters.messages} messages, seed {self._parameters.seed}"
        lost = [] if self._narrator is None else self._narrator.undelivered()
        return {"story": document(tracker or protocol, what, numbered(self._names), self._scenes, how, lost)}


def _run(
    parameters: Parameters,
    ledger: Ledger,
    recorder: RunRecorder | None,
    tell: _Storyteller | None,
    progress: Callable[[int], object] | None,
) -> dict[str, Any]:
    riders = None
    if parameters.tracker is not None:
        make = partial(tracking.create, parameters.tracker)
        dice = Random(f"{parameters.seed}/relevant")
        riders = Riders(make, parameters.processes, parameters.relevant, dice)
    terrain, protocol = parameters.terrain, parameters.protocol
    simulation = Simulation(
        partial(create, protocol) if terrain is None else terrain.factory(protocol),
        parameters.processes if terrain is None else terrain.processes(protocol),
        parameters.messages,
        seed=parameters.seed,
        workload=parameters.workload,
        network=parameters.network,
        terrain=terrain,
        recorder=recorder,
        ledger=ledger,
        riders=riders,
        progress=progress,
    )
    if tell is not None:
        tell.listen(simulation, riders)
    undelivered = simulation.run()
    return {
        "parameters": parameters.as_json(),
        "virtual_seconds": simulation.now / 1e9,
        "ledger": ledger.totals(),
        "undelivered": [_undelivered_as_json(left, parameters.names) for left in undelivered],
        "complete": True,  # what is undelivered now stays so: `check` may call it lost
    }


def _undelivered_as_json(left: Undelivered, names: Sequence[str]) -> dict[str, Any]:
    return {
        "process": names[left.process],
        "message": f"{names[left.message[0]]}:{left.message[1]}",
        "waits_for": [f"{names[sender]}:{clock}" for sender, clock in left.waits_for],
        "since": left.since,
    }


def claim(out: Path, *, force: bool) -> None:
    """Prepare `out` for a run: it must be new or empty, or `force` removes what an earlier run left there."""
    any_path(out)  # refuses what was a URL
    if out.is_file():
        raise LocalProtocolError(f"{out} is a file; name a directory to write to")
    if out.is_dir() and any(out.iterdir()):
        if not force:
            raise LocalProtocolError(
                f"{out} is not empty; choose another directory, or replace the run in it with --force"
            )
        ours = {pattern.split("/")[0] for pattern in OURS}
        tables = sorted(path.name for path in out.iterdir() if any(path.glob("*.parquet")))
        if answers := [name for name in tables if name not in ours]:
            raise LocalProtocolError(
                f"{out} holds answers about a trace ({', '.join(answers[:3])}), and --force replaces runs "
                "only: choose another directory"
            )
        _clear(out)
    out.mkdir(parents=True, exist_ok=True)


def _clear(out: Path) -> None:
    for pattern in OURS:
        for file in out.glob(pattern):
            file.unlink()
