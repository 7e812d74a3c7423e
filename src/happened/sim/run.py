"""One simulated run, given by parameters that fit in a JSON object, and the directory of its results.

    DIR/trace/part-*.parquet             what happened
    DIR/ledger/transmissions.parquet     what each transmission carried
    DIR/summary.json                     every parameter, the totals, and what was not delivered

The summary is written last: a directory without a summary is from a run that did not end. Until then trace
and ledger are marked as unfinished, so that `happened clean DIR` removes the files of a killed run.
"""

import json
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from itertools import chain
from pathlib import Path
from random import Random
from typing import Any

from .. import tracking
from ..core.errors import require
from ..ordering import DEFAULT, create, protocols
from ..trace import TraceWriter
from ..trace.atomic import UNFINISHED, mark
from ..trace.store import any_path, remove_tree
from .ledger import Ledger
from .narrator import Narrator
from .network import Network
from .programs import MOST_PROCESSES
from .recorder import RunRecorder
from .riders import Riders
from .scenes import document
from .simulation import Simulation, Undelivered
from .story import NOTATION, explained, numbered
from .terrain import Terrain
from .tracker_narrator import TrackerNarrator
from .workload import Workload, cast_of

OURS = ("trace/part-*.parquet", "ledger/transmissions.parquet", "summary.json", "story.html")
PARTS = ("trace", "ledger")
MOST_TOLD = 100
"""The largest number of messages in a story: each takes several steps, and a person reads them."""
MOST_ARRIVALS = 1_000
"""The largest product of messages and processes in a story, which bounds its steps without relaying."""


@dataclass(frozen=True, slots=True)
class Parameters:
    """All parameters of a run: the same parameters give the same events."""

    seed: int
    protocol: str = DEFAULT
    processes: int = 10
    messages: int = 10_000  # in the whole run
    workload: Workload = field(default_factory=Workload)
    network: Network = field(default_factory=Network)
    tracker: str | None = None  # its timestamps of relevant events travel with the messages
    relevant: float = 0.1  # probability of a relevant event after a send or a delivery, with a tracker
    terrain: Terrain | None = None  # if given, its applications are the processes

    def __post_init__(self) -> None:
        require(self.processes >= 2, f"a run needs at least two processes, not {self.processes}")
        require(self.messages >= 1, f"a run needs at least one message, not {self.messages}")
        if (terrain := self.terrain) is not None:
            senders = f"{terrain.applications} processes that send, not {self.processes}"
            require(self.processes == terrain.applications, f"{terrain.source} has {senders}")
            for asked, what in ((self.network.partitions, "partitions"), (self.tracker, "a tracker")):
                why = f"{what} and a topology are not simulated together; leave one out"
                require(not asked, why)
        for partition in self.network.partitions:
            require(
                max(partition.island) < self.processes,
                f"partition {partition} cuts off p{max(partition.island)}; "
                f"the processes are p0 to p{self.processes - 1}",
            )
        self._check_facts()
        if self.tracker is not None:
            tracking.create(self.tracker, 0, self.processes)
            likely = 0 <= self.relevant <= 1
            require(likely, f"relevant events have a probability in 0 … 1, not {self.relevant}")
            tracking.check_deliveries(self.tracker, protocols()[self.protocol].order, self.protocol)

    def _check_facts(self) -> None:
        known, protocol, pattern = protocols(), self.protocol, self.workload.pattern
        names = ", ".join(sorted(known))
        require(protocol in known, f"no ordering protocol is called {protocol!r}; there are: {names}")
        assumes, cast = known[protocol].assumes, cast_of(pattern)
        offered = ", ".join(sorted(assumes.casts))
        require(cast in assumes.casts, f"pattern {pattern!r} is {cast}; {protocol} offers only {offered}")
        fitting = self.network.fifo or not assumes.fifo_links
        require(fitting, f"{protocol} needs FIFO links: ask for a FIFO network (--fifo)")

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
    def machines(self) -> int:
        """The number of machines: on a terrain, routers have one too if the protocol relays."""
        return self.processes if self.terrain is None else self.terrain.processes(self.protocol)

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
    """Simulate, and return the summary; with `out`, write trace, ledger and summary there.

    `units`: record the units that every arriving message carries, for `check --necessary` to compare.
    `story`: add the story of all steps (of the tracker, if there is one) to the summary, under "story".
    """
    if story:
        _check_story(parameters)
    if out is None:
        return _run(parameters, Ledger(), None, story, progress)
    is_new = not out.exists()
    claim(out, force=force)
    parts = [out / name for name in PARTS]
    try:
        for part in parts:
            part.mkdir(exist_ok=True)
            mark(part)
        with (
            closing(Ledger(out / "ledger" / "transmissions.parquet")) as ledger,
            TraceWriter(out / "trace") as writer,
        ):
            tracker, names = parameters.tracker or "", parameters.names
            recorder = RunRecorder(writer, units=units, tracker=tracker, names=names)
            summary = _run(parameters, ledger, recorder, story, progress)
    except BaseException:  # a partial run would look like one that lost messages
        for part in parts:
            remove_tree(part)
        if is_new:
            out.rmdir()
        raise
    for part in parts:
        (part / UNFINISHED).unlink()
    kept = {name: value for name, value in summary.items() if name != "story"}
    (out / "summary.json").write_text(json.dumps(kept, indent=2, sort_keys=True) + "\n")
    return summary


def _check_story(parameters: Parameters) -> None:
    processes, messages = parameters.machines, parameters.messages
    for what, count, most in (
        ("messages", messages, MOST_TOLD),
        ("processes", processes, MOST_PROCESSES),
        ("messages times processes", messages * processes, MOST_ARRIVALS),
    ):
        require(
            count <= most,
            f"a story is told of at most {most:,} {what}, and this run has {count:,}: ask for fewer, "
            "as in --messages 20 --processes 5, or leave --story out",
        )


def _run(
    parameters: Parameters,
    ledger: Ledger,
    recorder: RunRecorder | None,
    story: bool,
    progress: Callable[[int], object] | None,
) -> dict[str, Any]:
    terrain, protocol, tracker = parameters.terrain, parameters.protocol, parameters.tracker
    riders = None
    if tracker is not None:
        dice = Random(f"{parameters.seed}/relevant")
        riders = Riders(partial(tracking.create, tracker), parameters.processes, parameters.relevant, dice)
    simulation = Simulation(
        partial(create, protocol) if terrain is None else terrain.factory(protocol),
        parameters.machines,
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
    if story and riders is not None and tracker is not None:
        told = TrackerNarrator(tracker, riders.trackers, now=simulation.seconds)
        simulation.tracker_narrator = told
    elif story:
        simulation.narrator = Narrator(simulation.machines, now=simulation.seconds)
    undelivered = simulation.run()
    summary = {
        "parameters": parameters.as_json(),
        "virtual_seconds": simulation.now / 1e9,
        "ledger": ledger.totals(),
        "undelivered": [_undelivered_as_json(left, parameters.names) for left in undelivered],
        "complete": True,  # undelivered messages stay undelivered, so `check` may call them lost
    }
    return summary | ({"story": _told(parameters, simulation)} if story else {})


def _told(parameters: Parameters, simulation: Simulation) -> dict[str, Any]:
    """The story of a finished run."""
    what = f"{parameters.messages} messages, seed {parameters.seed}"
    names = numbered(list(parameters.names)[: parameters.machines])
    if (narrator := simulation.narrator) is not None:
        how, lost = explained(parameters.protocol, simulation.machines), narrator.undelivered()
        return document(parameters.protocol, what, names, narrator.scenes, how, lost)
    assert simulation.tracker_narrator is not None
    return document(parameters.tracker or "", what, names, simulation.tracker_narrator.scenes, NOTATION)


def _undelivered_as_json(left: Undelivered, names: Sequence[str]) -> dict[str, Any]:
    return {
        "process": names[left.process],
        "message": f"{names[left.message[0]]}:{left.message[1]}",
        "waits_for": [f"{names[sender]}:{clock}" for sender, clock in left.waits_for],
        "since": left.since,
    }


def claim(out: Path, *, force: bool) -> None:
    """Prepare `out` for a run: it must be new or empty, or `force` removes the results of an earlier run."""
    any_path(out)  # raises for a URL
    require(not out.is_file(), f"{out} is a file; name a directory to write to")
    if out.is_dir() and any(out.iterdir()):
        why = f"{out} is not empty; choose another directory, or replace the run in it with --force"
        require(force, why)
        ours = {pattern.split("/")[0] for pattern in OURS}
        tables = sorted(path.name for path in out.iterdir() if any(path.glob("*.parquet")))
        answers = [name for name in tables if name not in ours]
        require(
            not answers,
            f"{out} holds answers about a trace ({', '.join(answers[:3])}), and --force replaces runs "
            "only: choose another directory",
        )
        for file in chain.from_iterable(map(out.glob, OURS)):
            file.unlink()
    out.mkdir(parents=True, exist_ok=True)
