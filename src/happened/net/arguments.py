"""Checks of what a node is told, and what is made of it before the node starts."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from ..core.errors import LocalProtocolError
from ..ordering import Facts
from .batch import Batch
from .limits import Limits
from .payloads import Payloads
from .signed import Signer
from .tcp import TcpTransport
from .transport import Guard, Shared, Sharing, Transport
from .udp_multicast import UdpMulticast

if TYPE_CHECKING:
    from opentelemetry.trace import TracerProvider

    from .telemetry import Telemetry


def share_batch(medium: Sharing, names: Callable[[], Sequence[str]], batch: Batch) -> None:
    """Let a medium carry the frames of a batch that are the same on several links."""
    if batch.shared:
        who = names()
        medium.share([Shared(frame, {who[link]: k for link, k in on.items()}) for frame, on in batch.shared])


def check_order(facts: Facts, tracker: str | None, journal: object) -> None:
    if facts.qualifier.keyword and tracker is not None:
        raise LocalProtocolError(f"{facts.name} is an incomplete order, which no tracker can ride on")
    if facts.assumes.serialized and journal is None:
        raise LocalProtocolError(
            f"{facts.name} passes a token from sender to sender, which would end with a process that is "
            "killed: give every node a journal"
        )


def telemetry_of(
    asked: "bool | TracerProvider", name: str, cluster: str, payloads: Payloads
) -> "Telemetry | None":
    if asked is False:
        return None
    if not payloads.has_headers:
        raise LocalProtocolError("spans travel in headers: telemetry needs Node(headers=True), on every node")
    try:
        from .telemetry import Telemetry
    except ImportError as error:
        raise LocalProtocolError(
            "telemetry needs opentelemetry-api: pip install 'happened[telemetry]'"
        ) from error
    return Telemetry(None if asked is True else asked, name, cluster, payloads)


def tcp_of(
    listen: str, guard: Guard | None, limits: Limits, medium: UdpMulticast | None, signer: Signer | None
) -> Transport:
    if guard is None:
        raise LocalProtocolError(
            "say how peers are authenticated: certificates, a shared key, or guard=Plaintext() to "
            "believe every name, which is for one machine only"
        )
    links = TcpTransport(listen, guard, limits)
    return links if medium is None else medium.over(links, guard, signer)
