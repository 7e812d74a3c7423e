"""Values as payloads: what each codec takes, what it refuses, and what comes back."""

import asyncio
import dataclasses
from enum import Enum
from typing import Any, Optional

import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from happened.core.errors import LocalProtocolError
from happened.net import JSON, MsgPack, PayloadError
from happened.net.payloads import MAX_HEADERS, Payloads, codec_of, open_sealed, seal
from happened.testing import MemoryNetwork


class Side(Enum):
    BUY = "buy"
    SELL = "sell"


@dataclasses.dataclass(frozen=True)
class Line:
    item: str
    count: int = 1


@dataclasses.dataclass(frozen=True)
class Order:
    side: Side
    lines: tuple[Line, ...]
    price: float | None = None
    proof: bytes = b""
    tags: frozenset[str] = frozenset()
    totals: dict[str, int] = dataclasses.field(default_factory=dict)
    corner: tuple[int, str] = (0, "")
    either: int | float = 0
    parent: Optional["Order"] = None


class Reading(pydantic.BaseModel):
    celsius: float


ORDER = Order(
    Side.SELL,
    (Line("a"), Line("b", 2)),
    2.5,
    b"\x00\xff",
    frozenset({"x"}),
    {"a": 1},
    (3, "z"),
    4,
    Order(Side.BUY, ()),
)
JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(value=JSON_VALUES)
def test_json_gives_back_what_it_took(value):
    assert JSON.decode(JSON.encode(value)) == value


@pytest.mark.parametrize(
    ("codec", "value"),
    [
        (None, b"bytes"),
        (MsgPack(), {"raw": b"\x00", "n": [1, None]}),
        (Order, ORDER),
        (Reading, Reading(celsius=21.5)),
        (pydantic.TypeAdapter(list[Reading]), [Reading(celsius=1)]),
    ],
    ids=["bytes", "msgpack", "dataclass", "pydantic", "adapter"],
)
@pytest.mark.parametrize("headers", [False, True], ids=["bare", "headers"])
def test_a_value_comes_back_as_it_was(codec, value, headers):
    payloads = Payloads(codec, headers=headers)
    payload = payloads.pack(value, {"k": "ü"} if headers else None)
    opened = payloads.open(payload)
    assert type(payload) is bytes and payloads.read(opened, "a:1") == value
    assert type(payloads.read(opened, "a:1")) is type(value)
    assert opened.headers == ({"k": "ü"} if headers else {})


@pytest.mark.parametrize("buffer", [bytearray(b"xy"), memoryview(b"axyz")[1:3]])
def test_buffers_are_copied(buffer):
    payloads = Payloads(None, headers=False)
    assert payloads.pack(buffer) == b"xy" and type(payloads.pack(buffer)) is bytes


@pytest.mark.parametrize(
    ("codec", "value", "why"),
    [
        (None, "text", "bytes, not str: give the node a codec"),
        (JSON, float("nan"), "not JSON compliant"),
        (JSON, {1: 2}, "text as keys"),
        (JSON, [{"x": {2, 3}}], "set"),
        (Order, Line("a"), "Line is no Order"),
        (Line, Line("a", "many"), "Line.count is int, and not str"),
        (Reading, Line("a"), "Line is no Reading"),
    ],
)
def test_what_a_codec_does_not_take_is_refused(codec, value, why):
    with pytest.raises(LocalProtocolError, match=f"does not take this value: .*{why}"):
        Payloads(codec, headers=False).pack(value)


@pytest.mark.parametrize(
    ("codec", "payload", "why"),
    [
        (JSON, b"\xff", "1 bytes that the codec does not read"),
        (Line, b'{"count": 1}', "item"),
        (Line, b"[1]", "Line is no dict but list"),
        (Line, b'{"item": "a", "count": true}', "Line.count is int, and not bool"),
        (Order, b'{"side": "steal", "lines": []}', "steal"),
        (Order, b'{"side": "buy", "lines": [], "price": "1"}', "Order.price is none of"),
        (Order, b'{"side": "buy", "lines": [], "corner": [1]}', "has 2 items, and not 1"),
        (Reading, b"{}", "celsius"),
    ],
)
def test_what_a_codec_does_not_read_says_so(codec, payload, why):
    payloads = Payloads(codec, headers=False)
    with pytest.raises(PayloadError, match=f"(?s)a:1: .*{why}.*acknowledge the message"):
        payloads.read(payloads.open(payload), "a:1")


def test_a_class_may_get_fields_while_both_versions_run():
    assert codec_of(Line).decode(b'{"item": "a", "colour": "red"}') == Line("a", 1)


@dataclasses.dataclass
class NotPlain:
    inner: dict[int, str]


@dataclasses.dataclass
class TwoModels:
    inner: Line | Order


@dataclasses.dataclass
class Foreign:
    inner: list[asyncio.Event]


@pytest.mark.parametrize(
    ("named", "why"),
    [
        (NotPlain, "NotPlain.inner: JSON has text as keys"),
        (TwoModels, "which of several dataclasses"),
        (Foreign, "Foreign.inner: JSON has nothing for"),
        (int, "codec <class 'int'> is none: give JSON"),
        ("json", "codec 'json' is none"),
    ],
)
def test_what_is_no_codec_is_refused_at_once(named, why):
    with pytest.raises(LocalProtocolError, match=why):
        codec_of(named)


@pytest.mark.parametrize(
    ("payload", "why"),
    [
        (b"", "no headers"),
        (b"hello", "no headers"),
        (b"\xe7\x02\x00\x00", "version 2: upgrade"),
        (b"\xe7\x01\x00\x09{}", "cut off"),
        (b"\xe7\x01\x00\x01{", "cannot be read"),
        (b"\xe7\x01\x00\x02[]", "no object"),
        (b"\xe7\x01\xff\xff" + b"[" * 0xFFFF, "cannot be read"),
    ],
)
def test_headers_that_are_none_are_told_and_the_bytes_stay(payload, why):
    opened = open_sealed(payload)
    assert why in opened.trouble and opened.body == payload
    with pytest.raises(PayloadError, match="every node headers=True, or none"):
        Payloads(None, headers=True).read(opened, "a:1")


@given(headers=st.dictionaries(st.text(), st.text(), max_size=4), body=st.binary())
def test_headers_come_back_in_front_of_any_body(headers, body):
    assert open_sealed(seal(headers, body))[:2] == (body, headers)


def test_headers_have_a_bound_and_need_their_option():
    with pytest.raises(LocalProtocolError, match="there is room for"):
        seal({"x": "y" * MAX_HEADERS}, b"")
    with pytest.raises(LocalProtocolError, match=r"Node\(headers=True\)"):
        Payloads(None, headers=False).pack(b"", {"a": "b"})


def test_nodes_send_values_and_a_payload_that_is_none_can_be_acknowledged(tmp_path):
    class Careless:
        """Sends whatever it is told to."""

        def encode(self, value: Any) -> bytes:
            return bytes(value)

        def decode(self, payload: bytes) -> Any:
            return payload

    async def scenario():
        network, names = MemoryNetwork(), ("a", "b")
        async with (
            network.node("a", names, codec=Careless()) as a,
            network.node("b", names, codec=Line, journal=tmp_path / "b") as b,
        ):
            await a.multicast("b", b"no line")
            await a.multicast("b", b'{"item": "tea"}')
            message = await asyncio.wait_for(anext(b), 10)
            with pytest.raises(PayloadError, match="a:1: 7 bytes that the codec does not read"):
                _ = message.value
            assert message.payload == b"no line"
            await message.ack()
            assert (await asyncio.wait_for(anext(b), 10)).value == Line("tea")
            assert b.acknowledged == 1 and b.delivered == 2
            with pytest.raises(LocalProtocolError, match="str is no Line"):
                await b.multicast("a", "tea")
            assert b.sent == 0

    asyncio.run(scenario())
