"""Traces of leader election on a ring (Peterson's algorithm): `node v0,v1,… event args`.

The vector's components are the nodes 0, 1, …. A `round-done` line repeats the clock of the event before
it and is none itself. Where every receive names its message by the last of its arguments, sends and
receives are paired; causes come from the clocks in either case.
"""

import re
from collections.abc import Iterable

from .clocked import assemble_clocked, clock_problem, out_of_file_order
from .draft import Assembly, Draft, Options, Parsed, by_computation
from .message_matching import Transmissions, pair
from .source import Source

LINE = re.compile(r"(?P<node>\d+) (?P<clock>\d+(?:,\d+)*) (?P<event>\S+)(?P<args>(?: \S+)*)\s*")
NO_EVENT = "round-done"


def parse(source: Source, options: Options) -> Parsed:
    for number, text in source.lines():
        match = LINE.fullmatch(text)
        if match is None:
            reason = "is not `node v0,v1,… event args`"
            yield source.quarantined(number, text, None, reason)
        elif match["event"] != NO_EVENT:
            clock = {str(node): int(count) for node, count in enumerate(match["clock"].split(","))}
            problem = clock_problem(match["node"], clock)
            if problem is not None:
                yield source.quarantined(number, text, "clock", problem)
                continue
            yield Draft(
                source.file,
                number,
                source.computation,
                match["node"],
                match["event"] + match["args"],
                clock={node: count for node, count in clock.items() if count},
            )


def assemble(drafts: Iterable[Draft], options: Options) -> Assembly:
    kept = list(drafts)
    for group in by_computation(kept).values():
        contents = _contents(group)
        if contents is not None:
            pair(group, contents, _message)
    return assemble_clocked(kept, causes_from_clocks=True)


def counts(drafts: list[Draft]) -> dict[str, int]:
    return {"hosts_out_of_file_order": out_of_file_order(drafts)}


def _message(draft: Draft) -> str:
    return (draft.label or "").rpartition(" ")[2]


def _contents(drafts: list[Draft]) -> dict[str, Transmissions] | None:
    """Transmissions by message number, or None if some event of either side has no partner by number."""
    contents: dict[str, Transmissions] = {}
    for i, draft in enumerate(drafts):
        event, *args = (draft.label or "").split()
        if event.startswith(("send", "recv")):
            both = contents.setdefault(args[-1] if args else "", Transmissions())
            (both.sends if event.startswith("send") else both.receives).append(i)
    paired = all(len(both.sends) == 1 == len(both.receives) for both in contents.values())
    return contents if paired else None
