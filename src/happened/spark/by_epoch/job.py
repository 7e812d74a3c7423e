"""Large computations, from their files of edges to their parts of every table.

In    what the pass over the rows found of each; the questions
Out   their parts of the questions' tables, and of quarantine, under `folder`
Cost  see epoch_layout, stamping, walks; every phase is one job for all of them together

A computation that turns out to be invalid is quarantined with the reason and has rows in no other table.
"""

from collections import Counter
from collections.abc import Sequence
from functools import partial

import pyarrow as pa

from ...causality.questions import Question
from ...trace.schema import QUARANTINE
from ...trace.store import AnyPath
from ..phases import Phases, Progress
from ..sizes import Large
from ..splits import Split
from ..storage import read_arrays, write_part
from ..tasks import Runner, TraceFault, on_each
from .epoch_layout import Found, Layout, lay_out
from .matching import unpack_names
from .named_violations import Laid
from .stamping import stamp, walk
from .steps import STEPS


def analyse_large(
    spark: Runner,
    large: Sequence[Large],
    found: Sequence[Found | TraceFault],
    splits: Sequence[Split],
    folder: AnyPath,
    questions: Sequence[Question],
    timestamps: str,
    epoch_events: int | None,
    progress: Progress,
    phases: Phases,
) -> Counter[str]:
    """The totals of the large computations; `found` has one for each."""
    totals, laid = _laid_out(spark, large, found, folder, epoch_events, progress, phases)
    layouts = [layout for _, layout in laid]
    for layout in layouts:
        totals += Counter(layout.totals) + Counter(computations=1)
    _quarantine_absent_causes(spark, folder, layouts)
    steps = {q.name: STEPS[q.name] for q in questions if q.name in STEPS}
    of_epochs = {name: step.epoch for name, step in steps.items() if step.epoch is not None}
    of_stamps = [question for question in questions if question.needs_stamps]
    narrow = [layout for layout in layouts if not layout.wide]
    of_narrow: list[dict[str, list[object]]] = [{} for _ in narrow]
    for layout in layouts:
        if layout.wide:
            progress(
                f"{layout.computation!r} has {len(layout.names):,} processes: its stamps are predecessors"
            )
    if of_stamps or of_epochs:
        epochs = sum(layout.epochs for layout in narrow)
        progress(f"stamping {epochs:,} epochs")

        def tell(done: int) -> None:
            progress(f"stamped {done:,} of {epochs:,} epochs")

        counted, of_narrow = phases.run(
            "stamps", lambda: stamp(spark, narrow, folder, of_stamps, timestamps, of_epochs, tell)
        )
        totals += counted
    progress("walks over the epochs")
    counted, told = phases.run(
        "walks", lambda: walk(spark, layouts, folder, questions, timestamps, of_epochs)
    )
    totals += counted
    stamped = iter(of_narrow)
    told = [of if layout.wide else next(stamped) for layout, of in zip(layouts, told, strict=True)]
    places = [Laid(layout, [splits[number] for number in of.splits], folder) for of, layout in laid]
    for question in questions:
        if question.name in steps and places:
            progress(question.help)
            said = [each.get(question.name, []) for each in told]
            totals += phases.run(question.name, partial(steps[question.name].finish, spark, places, said))
    return totals


def _laid_out(
    spark: Runner,
    large: Sequence[Large],
    found: Sequence[Found | TraceFault],
    folder: AnyPath,
    epoch_events: int | None,
    progress: Progress,
    phases: Phases,
) -> tuple[Counter[str], list[tuple[Large, Layout]]]:
    """The layouts of the computations that are sound; the totals of the others."""
    totals: Counter[str] = Counter()
    sound: list[tuple[Large, Found]] = []
    for of, result in zip(large, found, strict=True):
        if isinstance(result, TraceFault):
            totals += _quarantine(folder, of, result)
        else:
            result.number = len(sound)
            sound.append((of, result))
    progress(f"laying out {sum(of.events for of, _ in sound):,} events by epoch")
    laid: list[tuple[Large, Layout]] = []
    laying = phases.run("layout", lambda: lay_out(spark, [of for _, of in sound], epoch_events=epoch_events))
    for (of, _), layout in zip(sound, laying, strict=True):
        if isinstance(layout, TraceFault):
            totals += _quarantine(folder, of, layout)
        else:
            laid.append((of, layout))
    return totals, laid


def _quarantine(folder: AnyPath, of: Large, fault: TraceFault) -> Counter[str]:
    _write_reasons(folder, f"large-{of.name.encode().hex()[:40]}", of.name, [fault.reason])
    return Counter(quarantined=of.events)


def _quarantine_absent_causes(spark: Runner, folder: AnyPath, layouts: Sequence[Layout]) -> None:
    files = [(layout.store.name, layout.computation, path) for layout in layouts for path in layout.absent]

    def write(name: str, computation: str, path: AnyPath) -> None:
        reasons = unpack_names(read_arrays(path)["reasons"])
        _write_reasons(folder, f"{name}-absent-{path.stem}", computation, reasons)

    on_each(spark, files, write)


def _write_reasons(folder: AnyPath, part: str, computation: str, reasons: Sequence[str]) -> None:
    rows = [{"computation": computation, "reason": reason} for reason in reasons]
    if rows:
        write_part(folder / "quarantine", part, pa.Table.from_pylist(rows, schema=QUARANTINE))
