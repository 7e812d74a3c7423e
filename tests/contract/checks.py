"""The contract of a protocol: every check, and to whom it applies."""

from collections.abc import Callable
from typing import Any

from contract import copies, frames, runs, states
from happened.ordering.facts import Facts

CHECKS: tuple[Callable[[Facts, Any], None], ...] = (
    states.check_facts,
    states.check_shape,
    runs.check_interleavings,
    runs.check_safety,
    runs.check_liveness,
    runs.check_messages_to_oneself,
    runs.check_duplicates,
    runs.check_joins,
    runs.check_departures,
    runs.check_expulsions,
    runs.check_failures,
    runs.check_optimality,
    runs.check_explored,
    states.check_snapshots,
    states.check_bad_snapshots,
    states.check_refused_multicasts,
    states.check_refused_messages,
    frames.check_codec,
    frames.check_frames,
    frames.check_one_multicast,
    frames.check_bounds,
    copies.check_common_frame,
    frames.check_hostile_frames,
    frames.check_damaged_frames,
)


def applies(check, facts):
    return facts.promises.optimal if check is runs.check_optimality else True


def name_of(check):
    return check.__name__.removeprefix("check_").replace("_", " ")
