"""A process that has failed for good, who takes its place, and what was lost with it (Rodrigues & Veríssimo,
§4.4; site_changes.py has the steps that everybody takes).

    witness      The heir is a witness of the failed router: it has what that one was given, and forwards what
                 was not forwarded. Nothing is lost.
    collection   The heir, new or not, has neither journal nor copies; or there is none, if the failed process
                 forwards nothing. What only the failed one had, or was on its way to it, is lost: everybody
                 counts what it sent and what came (`Tally`), and the sender is told how many are missing.
"""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Any, NamedTuple

from ..core.destinations import unpack
from ..core.errors import LocalProtocolError
from ..ordering import Facts, able
from ..ordering.capabilities import ReplacesForwarder
from .site import Site, proposed


class How(Enum):
    WITNESS = "witness"
    COLLECTION = "collection"


class Succession(NamedTuple):
    failed: int
    heir: int | None
    how: How


def succession_proposal(
    present: Site,
    failed: str,
    heir: str | None,
    how: How,
    addresses: Mapping[str, str],
    past: Sequence[str],
) -> str:
    """The topology without a process that has failed for good, as the next one after the present. Raises
    CausalityError if it cannot be done without, or the heir cannot take its place."""
    from ..topology import from_document, refuse
    from ..topology.replacement import with_heir, without

    topology = from_document(present.document, present.source)
    _check_heir(present, failed, heir, how)
    if heir is None or how is How.WITNESS:
        following = without(topology, failed, heir)
    else:
        following = with_heir(topology, failed, heir)
    source = f"the topology without {failed!r}"
    refuse(following, source)
    return proposed(following, source, present, addresses, past, succession=[failed, heir, how.value])


def _check_heir(present: Site, failed: str, heir: str | None, how: How) -> None:
    here = {name for i, name in enumerate(present.members) if not present.departed >> i & 1}
    if failed not in here:
        raise LocalProtocolError(f"{failed!r} is no process of {present.source}, or has left it")
    if failed == present.name:
        raise LocalProtocolError(f"{failed!r} is running: say at another process that it has failed")
    if heir == failed or (heir in present.members and heir not in here):
        raise LocalProtocolError(
            f"{heir!r} cannot take the place of {failed!r}: it has failed or left itself"
        )
    index = present.members.index(failed)
    witnesses = [present.members[w] for w in unpack(present.witnesses.get(index, 0))]
    if how is How.WITNESS and heir not in witnesses:
        known = f"its witnesses are {', '.join(witnesses)}" if witnesses else "it has no witness"
        raise LocalProtocolError(
            f"{heir!r} is no witness of {failed!r}: {known}. Start {failed!r} again from its journal, on "
            "another machine if need be, or give up what only it had, by collection"
        )


def check_witnesses(facts: Facts, how: How) -> None:
    """Refuse a witness where the protocol gives it no copies."""
    if how is How.WITNESS and facts.name not in able(ReplacesForwarder):
        raise LocalProtocolError(
            f"{facts.name} gives witnesses no copies, so none can take over: start the failed process again "
            "from its journal, or give up what only it had, by collection"
        )


def succession_of(text: str, site: Site) -> Succession | None:
    """What a proposal says of a failure, for somebody in this site; None: nothing. Raises CausalityError if
    that cannot be."""
    said = json.loads(text).get("succession")
    if said is None:
        return None
    try:
        failed, heir, how = said
        found = How(how)
    except (TypeError, ValueError) as error:
        raise LocalProtocolError(f"the proposed succession cannot be read: {error}") from error
    if not isinstance(failed, str) or not (heir is None or isinstance(heir, str)):
        raise LocalProtocolError("the proposed succession cannot be read: names are text")
    _check_heir(site, failed, heir, found)
    names = json.loads(text)["names"]
    return Succession(names.index(failed), None if heir is None else names.index(heir), found)


def survivors_in_reach(site: Site, failed: int) -> int:
    """Those whom this process is connected with by links that do not end at the failed one, and itself."""
    index = {name: i for i, name in enumerate(site.members)}
    near: dict[int, int] = {}
    for one, other in site.edges:
        near[index[one]] = near.get(index[one], 0) | 1 << index[other]
        near[index[other]] = near.get(index[other], 0) | 1 << index[one]
    reached, around = 0, 1 << site.me
    while around:
        reached |= around
        following = 0
        for process in unpack(around):
            following |= near.get(process, 0)
        around = following & ~reached & ~(1 << failed)
    return reached


class Tally:
    """How many messages a process has sent to each other one, and has been given from each, in the present
    topology; and what was lost when a process of the last one failed."""

    def __init__(self) -> None:
        self.sent: Counter[int] = Counter()
        self.delivered: Counter[int] = Counter()
        self.before: dict[int, int] = {}  # sent in the last topology, to those who have given no account yet
        self.lost: dict[int, int] = {}  # of those: to whom, and how many
        self.heard: set[int] = set()  # whose accounts have come

    def turn(self, me: int, failed: int | None) -> tuple[tuple[int, int], ...]:
        """Begin to count anew; returns our own account of the last topology."""
        account = tuple(sorted(self.delivered.items()))
        self.before, self.lost, self.heard = {}, {}, set()
        if failed is not None:
            self.before = {to: count for to, count in self.sent.items() if to != failed}
            self.hear(me, me, account)
        self.sent, self.delivered = Counter(), Counter()
        return account

    def hear(self, me: int, process: int, counts: Sequence[tuple[int, int]]) -> None:
        """Somebody gives account."""
        self.heard.add(process)
        missing = self.before.pop(process, 0) - dict(counts).get(me, 0)
        if missing > 0:
            self.lost[process] = missing

    def state(self) -> list[Any]:
        counters = (self.sent, self.delivered, self.before, self.lost)
        return [*(sorted(each.items()) for each in counters), sorted(self.heard)]

    def restore(self, state: list[Any]) -> None:
        sent, delivered, before, lost, heard = state
        self.sent, self.delivered = Counter(dict(sent)), Counter(dict(delivered))
        self.before, self.lost, self.heard = dict(before), dict(lost), set(heard)
