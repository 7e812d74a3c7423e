"""A NATS JetStream stream as a source of Spark: `spark.readStream.format("happened-nats")`.

In      options: servers (URLs, commas between them), stream, subject (a filter), maxMessagesPerTrigger,
        missing: "fail" or "skip" if the broker has dropped messages before they were read: the oldest, or
        with a limit per subject others too. Messages that somebody deleted are not noticed
Out     sequence, subject, time, headers, data: a row for each message
Offset  the sequence number of the last message, which the broker assigns and never changes, and when the
        stream was created, in microseconds since 1970: a new stream of the same name numbers from 1 again. So
        a batch that is run again reads the same messages, or fails. This source sends the broker no
        acknowledgements and deletes nothing: the stream's configuration says what it keeps, and how long

Register it once: `spark.dataSource.register(NatsSource)`. Executors connect to the broker by themselves.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Any, NamedTuple, TypeVar

from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition

from ..core.errors import CausalityError
from ..spark.versions import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow, require

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


class _Range(NamedTuple):
    """A range of sequence numbers; if `whole`, none of its messages may be missing."""

    first: int
    last: int
    whole: bool


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
        if most:
            require("a limit of a batch")
        self._most = int(most) if most else None
        self._target: int | None = None

    def initialOffset(self) -> dict[str, int]:
        return {"sequence": 0}

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadAllAvailable() if self._most is None else ReadMaxRows(self._most)

    def latestOffset(
        self, start: dict[str, int] | None = None, limit: ReadLimit | None = None
    ) -> dict[str, int]:
        """The last offset of the next batch. PySpark before 4.2 passes neither `start` nor `limit`."""
        info = self._info()
        start = start or self.initialOffset()
        self._refuse_another(start, info)
        last, read = info.state.last_seq, start["sequence"]
        if self._target is not None:
            last = min(last, self._target)
        if isinstance(limit, ReadMaxRows):
            # Messages that the broker has dropped are skipped here, so that they make no empty batches.
            begin = max(read, info.state.first_seq - 1) if self._missing == "skip" else read
            last = min(last, begin + limit.max_rows)
        return {"sequence": last, "created": _created(info)} if last > read else start

    def prepareForTriggerAvailableNow(self) -> None:
        self._target = self._info().state.last_seq

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        first, last = start["sequence"] + 1, end["sequence"]
        info = self._info()
        self._refuse_another(start, info)
        self._refuse_another(end, info)
        kept = info.state.first_seq
        if kept > first and last >= first and self._missing == "fail":
            raise CausalityError(
                f"stream {self._stream} begins at message {kept}, but {first} is to be read next: the broker "
                'has dropped the messages between. Continue without them by .option("missing", "skip")'
            )
        begins = range(max(first, kept), last + 1, PARTITION_MESSAGES)
        # Only a limit per subject makes the broker drop messages between others.
        whole = self._missing == "fail" and not self._subject and (info.config.max_msgs_per_subject or 0) > 0
        ends = (min(at + PARTITION_MESSAGES - 1, last) for at in begins)
        return [InputPartition(_Range(at, end, whole)) for at, end in zip(begins, ends, strict=True)]

    def read(self, partition: InputPartition) -> Iterator[tuple[Any, ...]]:
        first, last, whole = partition.value
        rows = self._ask(lambda stream: self._fetch(stream, first, last))
        lacking = last - first + 1 - len(rows)
        if whole and lacking:
            raise CausalityError(
                f"stream {self._stream} limits the messages of each subject, and has dropped {lacking:,} "
                f"of {first} to {last}. "
                'Continue without them by .option("missing", "skip")'
            )
        yield from rows

    def _info(self) -> Any:
        async def info(jetstream: Any) -> Any:
            return await jetstream.stream_info(self._stream)

        return self._ask(info)

    def _refuse_another(self, offset: dict[str, int], info: Any) -> None:
        """CausalityError if the offset belongs to an earlier stream of the same name."""
        read, last = offset["sequence"], info.state.last_seq
        if offset.get("created", _created(info)) != _created(info) or read > last:
            raise CausalityError(
                f"message {read} of stream {self._stream} was read, but the present stream was created at "
                f"{info.created} and ends at {last}: it is another one. Start anew with another "
                "checkpoint"
            )

    def _ask(self, question: Callable[[Any], Awaitable[T]]) -> T:
        said: list[Exception] = []

        async def note(error: Exception) -> None:
            said.append(error)

        async def ask() -> T:
            connecting = nats.connect(self._servers, max_reconnect_attempts=1, error_cb=note)
            client = await asyncio.wait_for(connecting, CONNECT_SECONDS)
            try:
                return await question(client.jetstream(timeout=CONNECT_SECONDS))
            finally:
                await client.close()

        try:
            return asyncio.run(ask())
        except nats.js.errors.NotFoundError:
            where = _without_password(self._servers[0])
            raise CausalityError(f"there is no stream {self._stream} at {where}") from None
        except (OSError, TimeoutError, nats.errors.Error) as error:
            told = "; ".join(dict.fromkeys(str(each) or type(each).__name__ for each in (*said, error)))
            where = ", ".join(map(_without_password, self._servers))
            raise CausalityError(f"no JetStream at {where}: {told}") from error

    async def _fetch(self, jetstream: Any, first: int, last: int) -> list[tuple[Any, ...]]:
        """The messages with sequence numbers from `first` to `last` that the broker still has."""
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


def _created(info: Any) -> int:
    return int(info.created.timestamp() * 1_000_000)


def _without_password(server: str) -> str:
    """An address without its credentials."""
    scheme, mark, rest = server.strip().rpartition("://")
    return f"{scheme}{mark}{rest.rpartition('@')[2]}"
