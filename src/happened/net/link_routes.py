"""Which senders' messages may arrive over each link, where a topology gives the routes."""

from typing import Any

from ..core.errors import RemoteProtocolError
from ..core.places import Place, senders_by_link
from .kernel import Kernel
from .site_failures import How, Succession


class Routes:
    """The routes through one process; without a `place`, everybody sends directly."""

    def __init__(self, place: Place | None) -> None:
        self.stand(place)

    def attach(self, kernel: Kernel) -> None:
        """Take messages only over the links that their routes use."""
        read = kernel.read

        def read_routed(link: int, frame: bytes) -> Any:
            message = read(link, frame)
            self.check(link, message.sender)
            return message

        kernel.read = read_routed

    def stand(self, place: Place | None) -> None:
        self.place = place
        # Per link the set of processes whose messages are routed over it.
        self._senders: dict[int, int] | None = None if place is None else senders_by_link(place)

    def check(self, link: int, sender: int) -> None:
        """Raise RemoteProtocolError if a message of `sender` cannot come over this link."""
        if self._senders is not None and not self.leads(link, sender):
            raise RemoteProtocolError(
                f"a message of process {sender} comes over the link with process {link}, which "
                "its route does not use"
            )

    def leads(self, link: int, sender: int) -> bool:
        """Whether a route from `sender` comes over this link."""
        return self._senders is not None and bool(self._senders.get(link, 0) >> sender & 1)

    def expect_heir(self, succession: Succession) -> None:
        """Accept from the heir, a witness, the messages that came over the link with the failed router."""
        heir, senders = succession.heir, self._senders
        if succession.how is How.WITNESS and heir is not None and senders is not None:
            senders[heir] = senders.get(heir, 0) | senders.get(succession.failed, 0)
