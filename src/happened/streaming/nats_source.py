"""A NATS JetStream stream as a source of Spark: `spark.readStream.format("happened-nats")`.

In      options: servers (URLs, commas between them), stream, subject (a filter), maxMessagesPerTrigger,
        missing: "fail" or "skip", what to do where the broker no longer has messages that were not read
Out     sequence, subject, time, headers, data: a row for each message
Offset  the sequence number of the last message, which the broker gives and never changes. So a batch that is
        run again reads the same messages. The broker's own acknowledgements are not used, and nothing is
        deleted: what the stream keeps, and how long, is its own configuration

Register it once: `spark.dataSource.register(NatsSource)`. Executors connect to the broker by themselves.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Any, TypeVar

from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from ..core.errors import CausalityError

try:
    import nats
    import nats.errors
    import nats.js.errors
    from nats.js import api
except ImportError:
    raise CausalityError("happened-nats needs nats-py: pip install 'happened[nats]'") from None

SCHEMA = "sequence long, subject string, time timestamp, headers map<string,string>, data binary"
CONNECT_SECONDS = 5.0
FETCH_SECONDS = 5.0
FETCH_MESSAGES = 500
PARTITION_MESSAGES = 50_000

T = TypeVar("T")


class NatsSource(DataSource):
    @classmethod
    def name(cls) -> str:
        return "happened-nats"

    def schema(self) -> str:
        return SCHEMA

    def streamReader(self, schema: Any) -> "NatsReader":
        return NatsReader(dict(self.options))


class _Range(InputPartition):
    def __init__(self, first: int, last: int) -> None:
        self.first = first
        self.last = last


class NatsReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    def __init__(self, options: dict[str, str]) -> None:
        given = {name.lower(): value for name, value in options.items()}
        if "stream" not in given:
            raise CausalityError('format("happened-nats") needs .option("stream", NAME)')
        self._servers = given.get("servers", "nats://127.0.0.1:4222").split(",")
        self._stream = given["stream"]
        self._subject = given.get("subject", "")
        self._missing = given.get("missing", "fail")
        if self._missing not in ("fail", "skip"):
            raise CausalityError(f'missing is "fail" or "skip", not {self._missing!r}')
        most = given.get("maxmessagespertrigger", "")
        if most and not (most.isdecimal() and int(most) > 0):
            raise CausalityError(f"maxMessagesPerTrigger is a number above 0, not {most!r}")
        self._most = int(most) if most else None
        self._target: int | None = None

    def initialOffset(self) -> dict[str, int]:
        return {"sequence": 0}

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadAllAvailable() if self._most is None else ReadMaxRows(self._most)

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:
        last = self._state().last_seq
        if self._target is not None:
            last = min(last, self._target)
        if isinstance(limit, ReadMaxRows):
            last = min(last, start["sequence"] + limit.max_rows)
        return {"sequence": max(last, start["sequence"])}

    def prepareForTriggerAvailableNow(self) -> None:
        self._target = self._state().last_seq

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        first, last = start["sequence"] + 1, end["sequence"]
        kept = self._state().first_seq
        if kept > first and last >= first and self._missing == "fail":
            raise CausalityError(
                f"stream {self._stream} begins at message {kept} and {first} is to be read: the broker has "
                'dropped what lies between. Go on without it by .option("missing", "skip")'
            )
        begins = range(max(first, kept), last + 1, PARTITION_MESSAGES)
        return [_Range(at, min(at + PARTITION_MESSAGES - 1, last)) for at in begins]

    def read(self, partition: InputPartition) -> Iterator[tuple[Any, ...]]:
        assert isinstance(partition, _Range)
        yield from self._ask(lambda stream: self._fetch(stream, partition.first, partition.last))

    def _state(self) -> Any:
        async def info(jetstream: Any) -> Any:
            return (await jetstream.stream_info(self._stream)).state

        return self._ask(info)

    def _ask(self, question: Callable[[Any], Awaitable[T]]) -> T:
        async def ask() -> T:
            connecting = nats.connect(self._servers, max_reconnect_attempts=1, error_cb=_ignore)
            client = await asyncio.wait_for(connecting, CONNECT_SECONDS)
            try:
                return await question(client.jetstream(timeout=CONNECT_SECONDS))
            finally:
                await client.close()

        try:
            return asyncio.run(ask())
        except nats.js.errors.NotFoundError:
            raise CausalityError(f"there is no stream {self._stream} at {self._servers[0]}") from None
        except (OSError, TimeoutError, nats.errors.Error) as error:
            told = str(error) or type(error).__name__
            raise CausalityError(f"no JetStream at {', '.join(self._servers)}: {told}") from error

    async def _fetch(self, jetstream: Any, first: int, last: int) -> list[tuple[Any, ...]]:
        """The messages between two sequence numbers, as far as the broker has them."""
        config = api.ConsumerConfig(
            deliver_policy=api.DeliverPolicy.BY_START_SEQUENCE,
            opt_start_seq=first,
            ack_policy=api.AckPolicy.NONE,
            inactive_threshold=4 * FETCH_SECONDS,
        )
        consumer = await jetstream.pull_subscribe(self._subject, stream=self._stream, config=config)
        rows: list[tuple[Any, ...]] = []
        try:
            left = (await consumer.consumer_info()).num_pending or 0
            while left:
                for message in await consumer.fetch(min(FETCH_MESSAGES, left), timeout=FETCH_SECONDS):
                    data = message.metadata
                    if data.sequence.stream > last:
                        return rows
                    headers = dict(message.headers or {})
                    row = (data.sequence.stream, message.subject, data.timestamp, headers, message.data)
                    rows.append(row)
                    left = data.num_pending
        finally:
            await consumer.unsubscribe()
        return rows


async def _ignore(_: Exception) -> None:
    """Errors are raised where they matter."""
