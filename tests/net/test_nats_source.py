"""The messages of a JetStream stream by their sequence numbers, from a real server."""

import asyncio
from contextlib import suppress

import nats
import nats.js.errors
import pytest
from brokers import broker
from nats.js import api
from pyspark.sql.streaming.datasource import ReadAllAvailable

from happened.core.errors import CausalityError
from happened.streaming.nats_source import NatsReader, NatsSource


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with broker(tmp_path_factory.mktemp("nats")) as running:
        asyncio.run(fill(running.urls[0]))
        yield running.urls[0]


async def fill(url):
    client = await nats.connect(url)
    jetstream = client.jetstream()
    await jetstream.add_stream(name="said", subjects=["said.*"])
    for k in range(1, 8):
        await jetstream.publish(f"said.{k % 3}", b"%d" % k, headers={"k": str(k)})
    await jetstream.delete_msg("said", 4)
    await jetstream.add_stream(api.StreamConfig(name="short", subjects=["short"], max_msgs=2))
    for k in range(5):
        await jetstream.publish("short", b"%d" % k)
    newest = api.StreamConfig(name="newest", subjects=["newest.*"], max_msgs_per_subject=1)
    await jetstream.add_stream(newest)
    for subject in "abbbb":
        await jetstream.publish(f"newest.{subject}", b"")
    await client.close()


def reader(url, **options):
    return NatsReader({"servers": url, "stream": "said"} | options)


def read(source, start, end):
    parts = source.partitions({"sequence": start}, {"sequence": end})
    return [row for part in parts for row in source.read(part)]


def test_a_range_of_sequence_numbers_is_read_again_and_again(server):
    source = reader(server)
    assert source.initialOffset() == {"sequence": 0}
    latest = source.latestOffset({"sequence": 0}, source.getDefaultReadLimit())
    assert latest["sequence"] == 7
    assert source.latestOffset(latest, source.getDefaultReadLimit()) == latest
    rows = read(source, 2, 6)
    assert [row[0] for row in rows] == [3, 5, 6]  # 4 was deleted
    sequence, subject, _, headers, data = rows[0]
    assert (sequence, subject, headers, data) == (3, "said.0", {"k": "3"}, b"3")
    assert read(source, 2, 6) == rows
    assert read(source, 7, 7) == []
    assert [row[0] for row in read(reader(server, subject="said.1"), 0, 7)] == [1, 7]


def test_a_limit_and_a_target_end_a_batch(server):
    source = reader(server, maxMessagesPerTrigger="3")
    limit = source.getDefaultReadLimit()
    assert source.latestOffset({"sequence": 2}, limit)["sequence"] == 5
    assert source.latestOffset({"sequence": 2}, ReadAllAvailable())["sequence"] == 7
    source.prepareForTriggerAvailableNow()
    assert source.latestOffset({"sequence": 6}, limit)["sequence"] == 7


def test_messages_that_the_broker_has_dropped_are_told_or_skipped(server):
    with pytest.raises(CausalityError, match="begins at message 4, but 2 is to be read next"):
        read(reader(server, stream="short"), 1, 5)
    assert [row[0] for row in read(reader(server, stream="short", missing="skip"), 1, 5)] == [4, 5]


def test_what_is_skipped_makes_no_batches_of_its_own(server):
    source = reader(server, stream="short", missing="skip", maxMessagesPerTrigger="1")
    assert source.latestOffset({"sequence": 0}, source.getDefaultReadLimit())["sequence"] == 4


def test_messages_dropped_between_others_by_a_limit_per_subject_are_told_or_skipped(server):
    """The broker has 1, the newest of subject a, and 5, the newest of b."""
    with pytest.raises(CausalityError, match="has dropped 3 of 1 to 5"):
        read(reader(server, stream="newest"), 0, 5)
    assert [row[0] for row in read(reader(server, stream="newest", missing="skip"), 0, 5)] == [1, 5]
    assert [row[0] for row in read(reader(server, stream="newest", subject="newest.b"), 0, 5)] == [5]


@pytest.mark.parametrize("messages", [1, 9], ids=["shorter", "longer"])
def test_a_stream_of_the_same_name_that_is_another_one_is_not_gone_on_with(server, messages):
    """Its message 4 is not the one that comes after the three that were read."""
    asyncio.run(anew(server, 3))
    source = reader(server, stream="again")
    read_to = source.latestOffset({"sequence": 0}, source.getDefaultReadLimit())
    asyncio.run(anew(server, messages))
    with pytest.raises(CausalityError, match=r"message 3 of stream again was read.*it is another one"):
        source.latestOffset(read_to, source.getDefaultReadLimit())
    with pytest.raises(CausalityError, match="it is another one"):
        source.partitions({"sequence": 0}, read_to)


async def anew(url, messages):
    """A stream `again`, instead of the one that may be there."""
    client = await nats.connect(url)
    jetstream = client.jetstream()
    with suppress(nats.js.errors.NotFoundError):
        await jetstream.delete_stream("again")
    await jetstream.add_stream(name="again", subjects=["again"])
    for k in range(messages):
        await jetstream.publish("again", b"%d" % k)
    await client.close()


def test_a_password_is_not_shown():
    source = NatsReader({"servers": "nats://me:secret@127.0.0.1:1,tls://key@127.0.0.1:1", "stream": "said"})
    with pytest.raises(CausalityError) as refused:
        source.prepareForTriggerAvailableNow()
    told = str(refused.value)
    assert "nats://127.0.0.1:1, tls://127.0.0.1:1" in told and "secret" not in told and "key" not in told


@pytest.mark.parametrize(
    "options, told",
    [
        ({"stream": "nothing"}, "there is no stream nothing"),
        ({"servers": "nats://127.0.0.1:1"}, "no JetStream at nats://127.0.0.1:1"),
    ],
    ids=["no stream", "no server"],
)
def test_what_is_not_there_is_named(server, options, told):
    with pytest.raises(CausalityError, match=told):
        NatsReader({"servers": server, "stream": "said"} | options).prepareForTriggerAvailableNow()


@pytest.mark.parametrize(
    "options",
    [{}, {"stream": "s", "missing": "guess"}, {"stream": "s", "maxMessagesPerTrigger": "many"}],
    ids=["no stream", "missing", "limit"],
)
def test_options_that_make_no_sense_are_refused(options):
    with pytest.raises(CausalityError):
        NatsSource(options).streamReader(None)
