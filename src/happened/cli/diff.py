"""`happened ask diff`: what is caused in one run and not in another."""

import argparse
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

from .. import ask
from ..core.exit_codes import ExitCode
from .asking import plain, warn
from .terminal import print_answer

SHOWN = 20


def run(arguments: argparse.Namespace) -> int:
    with ThreadPoolExecutor(2) as two:  # reading waits for files, and computes outside of Python
        first, second = two.map(ask.load, (arguments.first, arguments.second))
    warn(first)
    warn(second)
    answer = ask.diff(first, second)
    print_answer(arguments, lambda: plain(answer), _lines(answer))
    return ExitCode.HOLDS


def _lines(answer: ask.Difference) -> Iterator[str]:
    common = f"{answer.common:,} events in common"
    if answer.is_empty:
        yield f"no difference: {common}, with the same causes"
        return
    yield common
    for run, events in ((1, answer.only_first), (2, answer.only_second)):
        yield from _some(f"{len(events):,} only in run {run}", [str(event) for event in events])
    for run, caused in ((1, answer.caused_first), (2, answer.caused_second)):
        told = [f"{each.cause}  →  {each.effect}  (in run {3 - run}: {each.instead})" for each in caused]
        yield from _some(f"{len(caused):,} cause{'s' * (len(caused) != 1)} only in run {run}", told)


def _some(heading: str, lines: Sequence[str]) -> Iterator[str]:
    if not lines:
        return
    yield f"{heading}:"
    yield from (f"  {line}" for line in lines[:SHOWN])
    if len(lines) > SHOWN:
        yield f"  … and {len(lines) - SHOWN:,} more; --json has them"
