"""Links over NATS JetStream: a broker keeps the frames until their receiver has journaled them.

    stream      one, durable, a work queue: a message is deleted when its receiver has journaled it
    subject     STREAM.to.from, so that a broker's permissions can keep processes from speaking for others:
                let each publish to `STREAM.*.me` and make consumers on `STREAM.me.*` alone
    consumer    one durable pull consumer per (to, from), acknowledged explicitly once the node has journaled
    message     consecutive frames of one link. It has no id by which the broker would drop duplicates: with
                an id that can be guessed, others could have a message dropped that was never stored; the
                numbers on the links suffice
    receipts    a second stream, in which receivers say what they have journaled (nats_broker.py)

Assumes    the broker keeps what it has acknowledged (three replicas survive the loss of one server). It
           authenticates clients, or the nodes sign or have a key of their group (nats_security.py).
Promises   the contract of `transport`. A publication that is not acknowledged in time is repeated. A node
           whose journal is an old copy stops before it publishes; of two nodes that run on copies of one
           journal, one stops when it sees that its peer has frames of the other. A connection that the
           client gives up, or on which answers fail to come, is made anew.
Bounds     WINDOW messages of about BATCH_BYTES are being published on each link, and IN_HAND are held
           here unjournaled. After a failure one message at a time is sent until one is acknowledged: so at
           most WINDOW - 1 messages stand before an earlier one in the stream. IN_HAND is larger: so the
           earlier one is always among the messages that the broker may hand over.
"""

import asyncio
import contextlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..wire import MAX_FRAME
from .errors import NodeError
from .nats_security import Seal, is_protected
from .signed import Signer
from .transport import Host, Transport

try:
    import nats.errors
    import nats.js.errors
    from nats.js import api

    from . import nats_broker as broker
    from .nats_broker import RETRY_SECONDS, RenewedClient, end, reason
    from .nats_link import Link
except ImportError:
    raise NodeError("the NATS transport needs nats-py: pip install 'happened[nats]'") from None

PING_SECONDS = 10.0
"""Two pings without an answer end a connection, even if the client has stopped reading it."""


class NatsTransport(Transport):
    """The links of one node through the stream `stream` of a NATS cluster. Peers need no addresses, since
    everyone is connected to the broker."""

    acknowledges_for_peers = False  # it acknowledges them when they are in the stream
    _links: dict[str, Link]

    def __init__(
        self,
        servers: str | Sequence[str] = "nats://127.0.0.1:4222",
        *,
        stream: str = "happened",
        replicas: int = 1,
        start_seconds: float = 30.0,
        key: bytes | str | Path | None = None,
        **options: Any,
    ) -> None:
        """`replicas`: how many servers of a cluster keep the stream; `key`, the same everywhere: keeps other
        clients of the broker from speaking for nodes; further options go to `nats.connect`."""
        super().__init__()
        self._servers = [servers] if isinstance(servers, str) else list(servers)
        self.seal = Seal(key, protected=is_protected(self._servers, options))
        self.stream = broker.token(stream)
        self.replicas = replicas
        self._start_seconds = start_seconds
        self._options = options
        self._client: RenewedClient | None = None
        self._keeping: asyncio.Task[None] | None = None

    def sign_with(self, signer: Signer) -> None:
        self.seal.sign_with(signer)

    async def start(self, host: Host) -> None:
        self._host = host
        self._client = await self._connect_in_time(host.name)
        self._make_links()
        self._keeping = asyncio.create_task(self._keep_client())

    async def _keep_client(self) -> None:
        """Replace a lost client by a new one, and begin the links as after a restart."""
        while True:
            lost = self.client
            while not (lost.is_lost.is_set() or lost.is_closed):  # a client does not always set both
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(lost.is_lost.wait(), RETRY_SECONDS)
            await self._note_error(lost.last_error or nats.errors.ConnectionClosedError())
            with contextlib.suppress(Exception):
                await lost.close()
            while self._client is lost:
                try:
                    self._client = await self._connect_in_time(self.host.name)
                except Exception as error:  # whatever the error, the node needs a client: try again
                    await self._note_error(error)
                    await asyncio.sleep(RETRY_SECONDS)
            await self._end_links()
            self._make_links()

    async def _end_links(self) -> None:
        links, self._makes_links = list(self._links.values()), False
        self._links.clear()
        await end([task for link in links for task in link.tasks])

    @property
    def client(self) -> RenewedClient:
        assert self._client is not None
        return self._client

    async def _connect_in_time(self, name: str) -> RenewedClient:
        connecting = asyncio.create_task(self._connect(name))
        try:
            await asyncio.wait([connecting], timeout=self._start_seconds)
        finally:
            is_late = not connecting.done()
            await end([connecting])
        try:
            if is_late:
                raise NodeError(f"no answer in {self._start_seconds:g} s")
            return connecting.result()
        except (OSError, nats.errors.Error, NodeError) as error:
            raise NodeError(
                f"no JetStream to be had from {', '.join(self._servers)}: {reason(error)}"
            ) from error

    async def _connect(self, name: str) -> RenewedClient:
        client = RenewedClient()
        options = {"ping_interval": PING_SECONDS} | self._options
        try:
            await client.connect(
                self._servers,
                name=f"happened {name}",
                max_reconnect_attempts=-1,
                reconnect_time_wait=RETRY_SECONDS,  # type: ignore[arg-type]  # a fraction works, too
                error_cb=self._note_error,
                closed_cb=client.lost,
                **options,
            )
            for config in self._streams():
                await self._make_stream(client.jetstream(timeout=broker.PUBLISH_SECONDS), config)
        except BaseException:
            with contextlib.suppress(Exception):
                await client.close()
            raise
        return client

    def _streams(self) -> list[api.StreamConfig]:
        links = self._stream_of(self.stream, f"{self.stream}.*.*", api.RetentionPolicy.WORK_QUEUE)
        receipts = broker.receipts_of(self.stream)
        last = self._stream_of(receipts, f"{receipts}.*.*", api.RetentionPolicy.LIMITS)
        last.max_msgs_per_subject, last.discard = 1, api.DiscardPolicy.OLD
        return [links, last]

    def _stream_of(self, name: str, subjects: str, retention: api.RetentionPolicy) -> api.StreamConfig:
        return api.StreamConfig(
            name=name,
            subjects=[subjects],
            retention=retention,
            storage=api.StorageType.FILE,
            # A full stream refuses publications, which stay in the outboxes; it never drops stored messages.
            discard=api.DiscardPolicy.NEW,
            num_replicas=self.replicas,
        )

    async def _make_stream(self, jetstream: Any, config: api.StreamConfig) -> None:
        while True:
            try:
                await jetstream.add_stream(config)
                return
            except nats.js.errors.BadRequestError as error:
                raise NodeError(f"stream {config.name!r} cannot be used: {error.description}") from None
            except (nats.js.errors.ServiceUnavailableError, nats.errors.Error):
                # The cluster has no leader yet; `start` gives up after `start_seconds`.
                await asyncio.sleep(RETRY_SECONDS)

    async def _note_error(self, error: Exception) -> None:
        if self._host is not None:
            self._host.disconnected("the broker", True, reason(error))

    @property
    def max_payload(self) -> int:
        """The longest message that the server takes, less a sixteenth for control information and headers."""
        return MAX_FRAME if self._client is None else self._client.max_payload * 15 // 16

    def _link_with(self, peer: str) -> Link:
        return Link(self, peer)

    async def close(self) -> None:
        if self._keeping is not None:
            await end([self._keeping])
        await self._end_links()
        client, self._client = self._client, None
        if client is not None:
            with contextlib.suppress(Exception):
                await asyncio.wait_for(client.flush(), 1)  # so that the last acknowledgements leave
            await client.close()
