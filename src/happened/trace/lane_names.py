"""Names of lanes: a process that does many things at once is several sequences of events in a trace.

`instance~2` and `instance~[orders/42]` are lanes of the process `instance`. What they share is its clock.
Only readers of spans make such names, and they write a tilde in the name of an instance as %7E.
"""

LANE = "~"


def instance_of(process: str) -> str:
    """The process that a lane belongs to; for a process without lanes, the process itself."""
    return process.partition(LANE)[0] or process
