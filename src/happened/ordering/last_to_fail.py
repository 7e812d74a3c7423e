"""Which members of a group failed last, if all of them have: Skeen, "Determining the Last Process to Fail",
ACM Transactions on Computer Systems 3(1), 1985.

Assumes    a member that acts on the failure of another has first recorded that failure in stable storage (a
           machine's `gone` is in its snapshot, and so in the journal), and only failed members are recorded.
Promises   the members that no other member outlived: their records are the newest, and recovery starts from
           them. A caller that asks too early is told which members must recover first.

A member that recorded the failure of another failed after it. So no member whose failure is recorded was
last. A member whose failure nobody recorded was last, unless a member that has not recovered yet may have
recorded it; a member that it outlived itself cannot have.
"""

from collections.abc import Mapping

from ..core.destinations import pack, unpack
from ..core.errors import LocalProtocolError


def last_to_fail(group: int, recorded: Mapping[int, int]) -> int:
    """The set of members of a group that failed last. `recorded` maps each recovered member to the set of
    members whose failures it recorded. Raises while others must recover first; the error names them."""
    last, awaited = perhaps_last(group, recorded)
    if awaited:
        names = ", ".join(map(str, unpack(awaited)))
        raise LocalProtocolError(
            f"who failed last is not known before {names} recovers: bring back its journal"
        )
    return last


def perhaps_last(group: int, recorded: Mapping[int, int]) -> tuple[int, int]:
    """Two sets: members whose failure no recovered member recorded, and members that must recover before we
    know that all of the first set failed last. If the second set is empty, they did."""
    silent = group & ~pack(recorded)
    last = group
    for failed in recorded.values():
        last &= ~failed
    awaited = last & silent
    for member in unpack(last & ~silent):
        awaited |= silent & ~_outlived(member, recorded)
    return last, awaited


def _outlived(member: int, recorded: Mapping[int, int]) -> int:
    """The members that failed before this one, by its own record or by the records of those members."""
    outlived, new = 0, recorded[member]
    while new:
        outlived |= new
        following = 0
        for other in unpack(new):
            following |= recorded.get(other, 0)
        new = following & ~outlived
    return outlived
