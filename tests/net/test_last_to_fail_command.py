"""`happened topology last-to-fail` on the journals of nodes that failed one after the other."""

import asyncio
import json

import pytest
from netcluster import free_ports

from happened.cli import main
from happened.net import Node, Plaintext
from happened.ordering import able
from happened.ordering.capabilities import ReplacesForwarder

HUB = (
    "processes: [a, b]\nrouters: [f, w]\nseparators: [[f, w]]\n"
    "links: [[f, w], [a, f], [a, w], [b, f], [b, w]]\n"
)
WITNESSED = able(ReplacesForwarder)[0]


@pytest.fixture
def journals(tmp_path):
    """f fails and is succeeded by w; then all others end too."""
    file = tmp_path / "hub.yaml"
    file.write_text(HUB)
    peers = {name: f"127.0.0.1:{port}" for name, port in zip("abfw", free_ports(4), strict=True)}

    def node(name):
        journal = tmp_path / f"{name}.journal"
        more = {"protocol": WITNESSED, "topology": file, "journal": journal, "guard": Plaintext()}
        return Node(name, peers=peers, listen=peers[name], **more)

    async def live():
        nodes = {name: node(name) for name in "abfw"}
        await asyncio.gather(*(each.start() for each in nodes.values()))
        await nodes["a"].multicast(["b"], b"before")
        await (await anext(nodes["b"])).ack()
        await nodes.pop("f").close()
        await nodes["w"].succeed("f", "w")
        await nodes["a"].multicast(["b"], b"after")
        await (await anext(nodes["b"])).ack()
        assert (nodes["a"].lost, nodes["a"].unaccounted) == ({}, [])
        await asyncio.gather(*(each.close() for each in nodes.values()))

    asyncio.run(asyncio.wait_for(live(), 60))
    return tmp_path


def test_the_journal_to_start_from_is_that_of_who_failed_last(journals, capsys):
    f, w = (str(journals / f"{name}.journal") for name in "fw")
    command = ["topology", "last-to-fail"]
    assert main([*command, f, w]) == 0
    assert capsys.readouterr().out == "w failed last: start from that journal\n"
    assert main([*command, w, "--members", "f,w", "--json"]) == 0, "it has outlived the other"
    told = json.loads(capsys.readouterr().out)
    assert told == {"last": ["w"], "awaited": [], "recorded": {"w": ["f"]}}
    assert main([*command, f, "--members", "f,w"]) == 3
    assert "not known before the journal of w is here" in capsys.readouterr().out
    for bad, why in (
        ([f, f], "two of these are journals of 'f'"),
        ([f, "--members", "w"], "'f' is not among the members w"),
        ([str(journals / "none.journal")], "no such file"),
        ([str(journals / "hub.yaml")], "hub.yaml"),
    ):
        assert main([*command, *bad]) == 2
        assert why in capsys.readouterr().err
