"""Which members of a group failed last, if all of them have: Skeen, "Determining the Last Process to Fail",
ACM Transactions on Computer Systems 3(1), 1985.

Assumes    a member that acts on the failure of another has recorded it in stable storage first (`gone` of a
           machine is in its snapshot, and so in the journal), and nobody is recorded who has not failed.
Promises   the members that no other member outlived: what they recorded is the newest there is, and recovery
           starts from there. Whoever is recovered before that can be known is told whom to wait for.

A member that recorded the failure of another failed after it. So no member that somebody recorded was last;
and a member that nobody recorded was, unless somebody who has not recovered yet may have recorded it. Those
whom it outlived itself cannot have.
"""

from collections.abc import Mapping

from ..core.destinations import pack, unpack
from ..core.errors import LocalProtocolError


def last_to_fail(group: int, recorded: Mapping[int, int]) -> int:
    """The set of members of a group that failed last. `recorded` has, for each member that is recovered, the
    set of those whose failures it recorded. Refused while others must recover first; the error names them."""
    last, awaited = perhaps_last(group, recorded)
    if awaited:
        names = ", ".join(map(str, unpack(awaited)))
        raise LocalProtocolError(
            f"who failed last is not known before {names} recovers: bring back its journal"
        )
    return last


def perhaps_last(group: int, recorded: Mapping[int, int]) -> tuple[int, int]:
    """The members that nobody is recorded to have outlived, and those who must recover before that is known
    of all of them: if these are none, the former failed last."""
    silent = group & ~pack(recorded)
    last = group
    for failed in recorded.values():
        last &= ~failed
    awaited = last & silent
    for member in unpack(last & ~silent):
        awaited |= silent & ~_outlived(member, recorded)
    return last, awaited


def _outlived(member: int, recorded: Mapping[int, int]) -> int:
    """Those who failed before this member, as far as it recorded it, or those did who failed before it."""
    outlived, new = 0, recorded[member]
    while new:
        outlived |= new
        following = 0
        for other in unpack(new):
            following |= recorded.get(other, 0)
        new = following & ~outlived
    return outlived
