"""A program as a user would write it, with everything that a node offers: a strict type checker takes it, and
its `main` runs over a network in memory. tests/net/test_user_program.py sees to it that nothing is missing.
"""

import asyncio
import contextlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, assert_type

from opentelemetry import trace

from happened.net import (
    JSON,
    Causality,
    Codec,
    Health,
    IdentityError,
    JournalError,
    Limits,
    LinkChange,
    Message,
    MsgPack,
    MutualTls,
    NatsBroadcast,
    NatsTransport,
    Node,
    NodeClosed,
    NodeError,
    NodeFull,
    OldJournal,
    PayloadError,
    PeerRefused,
    Pending,
    Plaintext,
    Quarantined,
    Sent,
    SharedKey,
    Signatures,
    Subscription,
    UdpMulticast,
    was_sent,
)
from happened.testing import MemoryNetwork


@dataclass(frozen=True)
class Order:
    item: str
    count: int = 1


class Shouting:
    def encode(self, value: str) -> bytes:
        return value.upper().encode()

    def decode(self, payload: bytes) -> str:
        return payload.decode()


CODECS: list[Codec] = [JSON, MsgPack(), Shouting()]


def over_links(name: str, peers: Mapping[str, str], pki: Path, how: str) -> Node:
    common: dict[str, Any] = {
        "journal": f"{name}.journal",
        "limits": Limits(outbox=1 << 20),
        "cluster": "shop",
    }
    if how == "key":
        medium = UdpMulticast("239.255.7.1:7400")
        return Node(
            name, peers=peers, listen=peers[name], guard=SharedKey("lab.key"), medium=medium, **common
        )
    if how == "tls":
        files = {"authority": pki / "ca.pem", "certificate": pki / f"{name}.pem", "key": pki / f"{name}.key"}
        own = Signatures(name, members=pki, authority=pki / "ca.pem", key=pki / f"{name}.key")
        guard = MutualTls(name, **files)
        return Node(name, peers=peers, listen=peers[name], guard=guard, signatures=own, **common)
    if how == "nats":
        return Node(name, peers=list(peers), transport=NatsTransport("nats://127.0.0.1:4222"), **common)
    if how == "nats-broadcast":
        return Node(name, peers=list(peers), transport=NatsBroadcast(["nats://127.0.0.1:4222"]), **common)
    return Node(
        name,
        peers=peers,
        listen=peers[name],
        guard=Plaintext(),
        protocol="ks",
        members=list(peers),
        groups={"team": ["alice", "bob"]},
        trace="trace",
        tracker="p1",
        headers=True,
        stamps=True,
        codec=Order,
        telemetry=trace.get_tracer_provider(),
    )


async def send(node: Node) -> Sent:
    sent = await node.multicast("bob", Order("tea"), headers={"kind": "order"}, timeout=5)
    await node.room("bob", timeout=5)
    node.multicast_nowait(["bob", "carol"], Order("coffee"), ordered=False)
    await node.broadcast(Order("milk"), timeout=5)
    node.relevant("ordered")
    await node.flush()
    return sent


async def serve(messages: Subscription) -> list[Order]:
    """Take four orders; the last is a request."""
    orders: list[Order] = []
    async for message in messages:
        with message.processing():
            try:
                order: Order = message.value
            except PayloadError as error:
                print(error)
                message.ack_nowait()
                continue
            if message.attempt == 1 and order.item == "milk":
                message.nack(delay=0.001)
                continue
            orders.append(order)
            if message.is_request:
                await message.reply(Order(order.item, order.count + 1))
                return orders
            await message.ack()
    return orders


def show(message: Message) -> str:
    kind: str | None = message.headers.get("kind")
    clock: int = message.clock
    payload: bytes = message.payload
    assert_type(message.reply_to, str | None)
    assert message.stamp is not None or kind is None
    return f"{message.number} {message.name} {message.sender} {clock} {len(payload)} {message.stamp}"


async def take(node: Node) -> Causality:
    """Take two orders at carol, tell how they stand to each other, and answer one."""
    first = await anext(node)
    while (second := node.receive_nowait()) is None or second.stamp is None:
        await asyncio.sleep(0.001)
    print(show(first))
    await first.ack_and_multicast(first.sender, Order("thanks"), headers={"kind": "thanks"})
    await second.ack()
    return node.relation(first, second)


def look(node: Node) -> Health:
    held: list[Pending] = node.pending()
    aside: list[Quarantined] = node.quarantined()
    stats: dict[str, Any] = node.stats()
    places = (node.sent, node.delivered, node.acknowledged)
    print(
        node.name,
        len(held),
        len(aside),
        stats["multicasts"],
        *places,
        node.members,
        node.others,
        node.failure,
    )
    print(sum(node.timings()["hold_seconds"].counts), node.site, node.lost, node.unaccounted)
    return node.health()


def tell(change: LinkChange) -> None:
    print(change.peer, change.outgoing, change.is_up, change.reason)


async def operate(node: Node) -> tuple[str, ...]:
    """What operators do: processes and links come and go."""
    members = await node.join("dave", "127.0.0.1:7004")
    await node.expel("erin")
    await node.change_topology("site.yaml", {"dave": "127.0.0.1:7004"}, timeout=5)
    await node.succeed("router", None, how="collection")
    node.reload_certificates()
    await node.leave(timeout=5)
    return members


async def guarded(node: Node) -> Sent | None:
    """Everything that can go wrong, as one would handle it."""
    try:
        await node.start()
        async with asyncio.timeout(1):
            await node.multicast("bob", b"hello")
    except (IdentityError, JournalError) as error:
        print("not started:", error)
    except NodeFull as error:
        print("nothing was sent:", error)
    except (NodeClosed, OldJournal, PeerRefused, NodeError) as error:
        print("stopped:", error)
    except TimeoutError as error:
        return was_sent(error)
    finally:
        await node.close()
    return None


async def main() -> None:
    options: dict[str, Any] = {"codec": Order, "headers": True, "tracker": "p1", "stamps": True}
    async with MemoryNetwork(seed=1).nodes("alice", "bob", "carol", **options) as (alice, bob, carol):
        bob.on_link(tell)
        with bob.subscribe() as messages:
            serving = asyncio.create_task(serve(messages))
            print(await send(alice), await take(carol))
            reply = await alice.request("bob", Order("bread"), timeout=10)
            await reply.ack()
            print(reply.value, [order.item for order in await serving])
        assert look(alice).is_live
    with contextlib.suppress(TimeoutError):
        network = MemoryNetwork()
        print(await guarded(network.node("alice", ("alice", "bob"))))


if __name__ == "__main__":
    asyncio.run(main())
