"""Which peers are connected, and a log of the troubles with connections that nobody can flood.

Bounds     LOGGED_REASONS different troubles with each member, and as many with all strangers together, are
           logged once each; further ones are dropped, and repetitions are only counted.
"""

import logging

log = logging.getLogger("happened.node")

LOGGED_REASONS = 1000


class Connections:
    """The connections of the node `name`: those it made (*calling*) and those it accepted (*called*)."""

    def __init__(self, name: str) -> None:
        self._name = name
        self.calling: set[str] = set()
        self.called: set[str] = set()
        self._troubles: dict[str, dict[tuple[str, str], int]] = {}  # by member; "" for strangers

    def opened(self, peer: str, outgoing: bool) -> None:
        (self.calling if outgoing else self.called).add(peer)
        log.info("connected", extra={"node": self._name, "peer": peer, "outgoing": outgoing})

    def closed(self, peer: str, outgoing: bool, reason: str, *, is_member: bool) -> None:
        """A connection has ended or was never made; an empty reason is no trouble."""
        (self.calling if outgoing else self.called).discard(peer)
        if not reason:
            return
        key = (peer, reason)
        troubles = self._troubles.setdefault(peer if is_member else "", {})
        if key in troubles:
            troubles[key] += 1
        elif len(troubles) < LOGGED_REASONS:
            troubles[key] = 1
            log.warning(
                "disconnected",
                extra={"node": self._name, "peer": peer, "outgoing": outgoing, "reason": reason},
            )

    def troubles_with(self, member: str) -> dict[str, int]:
        """How often connections with this member have failed, by reason."""
        return {reason: times for (_, reason), times in self._troubles.get(member, {}).items()}
