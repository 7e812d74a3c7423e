"""Which peers are connected, and a log of connection troubles that nobody can flood.

Bounds     LOGGED_REASONS different troubles with each member, and as many with all strangers together, are
           logged once each; further ones are dropped, and repetitions are only counted. A recovered link is
           logged at the same level as its trouble was, once for each trouble.
"""

import logging
from collections.abc import Callable
from typing import NamedTuple

log = logging.getLogger("happened.node")

LOGGED_REASONS = 1000

CLOSED_IN_ORDER = "the other side closed it"
"""The reason with which a connection ends when either node closes. It is logged as information, since the
node calls again; a warning follows if the connection cannot be made again."""

REMEDIES = (
    ("Connect call failed", "is it running, and is that its address?"),
    ("Connection refused", "is it running, and is that its address?"),
    ("no answer in time", "is it running, and is that its address?"),
    ("does not have our shared key", "give both the same key file"),
    ("CERTIFICATE_EXPIRED", "issue a new certificate: happened node keys issue"),
    ("certificate has expired", "issue a new certificate: happened node keys issue"),
    ("CERTIFICATE", "give both certificates of one authority: happened node keys issue"),
    ("no TLS", "do both have certificates, or neither?"),
    ("it speaks version", "upgrade the older one"),
    ("it does not speak this protocol", "is something else calling this port?"),
    ("is no longer a peer of", "it has left or was expelled; to come back, it joins under a new name"),
    ("is not a peer of", "list it under peers here, or correct the address it calls"),
    ("wanted", "correct the address that it calls"),
)
"""Advice for a reason that contains these words and gives no advice itself; the first match counts."""


class LinkChange(NamedTuple):
    """A connection was made or has ended. `outgoing`: it carries our frames, otherwise the peer's."""

    peer: str
    outgoing: bool
    is_up: bool
    reason: str  # why it ended; empty: it was closed in order


class Connections:
    """The connections of the node `name`: those it made (*calling*) and those it accepted (*called*)."""

    def __init__(self, name: str) -> None:
        self._name = name
        self.calling: set[str] = set()
        self.called: set[str] = set()
        self.listeners: list[Callable[[LinkChange], object]] = []
        self._troubles: dict[str, dict[tuple[str, str], int]] = {}  # by member; "": all strangers
        self._warned: set[tuple[str, bool]] = set()  # links warned of since they last were up

    def opened(self, peer: str, outgoing: bool) -> None:
        (self.calling if outgoing else self.called).add(peer)
        is_news = (peer, outgoing) in self._warned
        self._warned.discard((peer, outgoing))
        text = f"the link {_way(outgoing)} {peer} is there{' now' if is_news else ''}"
        self._log(is_news, text, event="connected", peer=peer, outgoing=outgoing)
        self._tell(LinkChange(peer, outgoing, True, ""))

    def closed(self, peer: str, outgoing: bool, reason: str, *, is_member: bool) -> None:
        """Note that a connection has ended or was never made; an empty reason is no trouble."""
        was_up = peer in (self.calling if outgoing else self.called)
        (self.calling if outgoing else self.called).discard(peer)
        if was_up:
            self._tell(LinkChange(peer, outgoing, False, reason))
        if not reason:
            return
        key = (peer, reason)
        troubles = self._troubles.setdefault(peer if is_member else "", {})
        if key in troubles:
            troubles[key] += 1
        elif len(troubles) < LOGGED_REASONS:
            troubles[key] = 1
            is_warning = not was_up or reason != CLOSED_IN_ORDER
            if is_warning and is_member:
                self._warned.add((peer, outgoing))
            told = {"event": "disconnected", "peer": peer, "outgoing": outgoing, "reason": reason}
            remedy = next((f"; {remedy}" for words, remedy in REMEDIES if words in reason), "")
            self._log(is_warning, f"no link {_way(outgoing)} {peer}: {reason}{remedy}", **told)

    def _log(self, is_warning: bool, text: str, **told: object) -> None:
        level = logging.WARNING if is_warning else logging.INFO
        log.log(level, "%s: %s", self._name, text, extra={"node": self._name, **told})

    def _tell(self, change: LinkChange) -> None:
        for listener in self.listeners:
            try:
                listener(change)
            except Exception:  # the listener is the application's: its error must not end a peer's connection
                log.exception("a listener to links failed", extra={"node": self._name})

    def troubles_with(self, member: str) -> dict[str, int]:
        """How often connections with this member have failed, by reason."""
        return {reason: times for (_, reason), times in self._troubles.get(member, {}).items()}

    @property
    def troubles(self) -> dict[str, int]:
        """How often connections have failed, by member; "strangers" for all processes that are no members."""
        return {member or "strangers": sum(of.values()) for member, of in self._troubles.items()}


def _way(outgoing: bool) -> str:
    return "to" if outgoing else "from"
