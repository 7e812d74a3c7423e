"""What a multicast to a peer does whose outbox is full: a policy for each peer."""

from collections.abc import Iterable, Mapping
from enum import StrEnum

from ..core.errors import LocalProtocolError


class WhenFull(StrEnum):
    """wait     until the peer has taken some
    refuse   raise NodeFull at once
    park     keep the frames on disk, up to `limits.parked` bytes; above that, wait
    """

    WAIT = "wait"
    REFUSE = "refuse"
    PARK = "park"


class Policies:
    """`given`: one policy for every peer, or some by name, and the others wait."""

    def __init__(self, given: str | Mapping[str, str], *, journaled: bool) -> None:
        self._default = WhenFull.WAIT
        self._named: dict[str, WhenFull] = {}
        if isinstance(given, str):
            self._default = _policy(given, "every peer")
        else:
            self._named = {name: _policy(each, repr(name)) for name, each in given.items()}
        if not journaled and WhenFull.PARK in (self._default, *self._named.values()):
            raise LocalProtocolError("frames are parked in the journal: give the node one")

    def of(self, name: str) -> WhenFull:
        return self._named.get(name, self._default)

    def strangers(self, members: Iterable[str]) -> list[str]:
        """The names with a policy that no member has, so far."""
        return sorted(self._named.keys() - set(members))


def _policy(text: str, whose: str) -> WhenFull:
    try:
        return WhenFull(text)
    except ValueError:
        known = ", ".join(each.value for each in WhenFull)
        raise LocalProtocolError(f"a full outbox of {whose} can: {known}; not {text!r}") from None
