"""From a topology file to running processes: `topology deploy` writes what `happened node` starts."""

import json
import subprocess
import sys
import threading
import tomllib
from pathlib import Path

import pytest
from netcluster import free_ports

from happened.cli import main
from happened.net.config import load, make_node
from happened.net.deployment import SECURITY, Addresses, deploy
from happened.net.errors import NodeError

EXAMPLES = Path(__file__).parents[2] / "examples" / "topologies"
HUB = "processes: [a, b]\nrouters: [r]\nlinks: [[a, r], [b, r]]\ngroups: {both: [a, b]}\n"


@pytest.fixture
def hub(tmp_path):
    file = tmp_path / "hub.yaml"
    file.write_text(HUB)
    return file


class Running:
    """`happened node` on a configuration: what it prints, as it comes."""

    def __init__(self, config):
        command = [sys.executable, "-m", "happened", "node", "--config", str(config), "--log-level", "ERROR"]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def say(self, **command):
        self.process.stdin.write(json.dumps(command) + "\n")
        self.process.stdin.flush()

    def hear(self):
        return json.loads(self.process.stdout.readline())

    def end(self):
        self.process.stdin.close()
        code = self.process.wait(20)
        self.process.stdout.close()
        return code


@pytest.mark.parametrize(
    "security",
    [
        pytest.param(each, marks=[pytest.mark.slow] if number else [])
        for number, each in enumerate(["certificates --signatures", *SECURITY])
    ],
)
def test_what_is_deployed_runs_and_its_trace_holds(tmp_path, hub, security, capsys):
    given = {name: f"127.0.0.1:{port}" for name, port in zip("abr", free_ports(3), strict=True)}
    where = [word for name, address in given.items() for word in ("--address", f"{name}={address}")]
    site = tmp_path / "site"
    wishes = ["--security", *security.split(), *where]
    assert main(["topology", "deploy", str(hub), "--out", str(site), *wishes]) == 0
    configs = capsys.readouterr().out.split()
    assert [Path(config).name for config in configs] == ["a.toml", "b.toml", "r.toml"]
    nodes = [Running(config) for config in configs]
    watchdog = threading.Timer(60, lambda: [node.process.kill() for node in nodes])
    watchdog.start()
    a, b, router = nodes
    try:
        a.say(to="b", text="hello")
        assert a.hear() == {"sent": "a:1"}
        assert b.hear() == {"number": 1, "message": "a:1", "sender": "a", "text": "hello"}
        b.say(to=["both"], text="yes")
        assert a.hear() == {"number": 1, "message": "b:1", "sender": "b", "text": "yes"}
        router.say(to="a", text="I")
        assert "is a router" in router.hear()["error"]
        b.hear(), b.hear()  # sent, and delivered to itself
        for node in nodes:
            assert node.end() == 0
    finally:
        watchdog.cancel()
        for node in nodes:
            node.process.kill()
    assert main(["check", str(site / "trace")]) == 0
    assert "lost                    0" in capsys.readouterr().out


def test_a_configuration_knows_its_links_and_nobody_elses_key(tmp_path):
    written = deploy(EXAMPLES / "departments.yaml", tmp_path / "site", protocol="zoned-ks")
    assert len(written) == 15
    rx = tomllib.loads((tmp_path / "site" / "rx.toml").read_text())
    assert set(rx["peers"]) == {"ana", "bruno", "carla", "dinis", "lx1", "lx2"}
    assert rx["security"] == {
        "authority": "pki/ca.pem",
        "certificate": "pki/rx.pem",
        "private_key": "pki/rx.key",
    }
    assert (rx["protocol"], rx["topology"], rx["listen"]) == (
        "zoned-ks",
        "departments.yaml",
        "127.0.0.1:7012",
    )
    for path in written:
        make_node(load(path))


def test_with_signatures_each_knows_the_certificates_of_all(tmp_path, hub):
    written = deploy(hub, tmp_path / "site", protocol="topological", signatures=True)
    r = tomllib.loads((tmp_path / "site" / "r.toml").read_text())
    assert r["signatures"] == {"key": "pki/r.key", "members": "pki", "authority": "pki/ca.pem"}
    assert all(make_node(load(path))._signatures is not None for path in written)
    assert "signatures" not in load(deploy(hub, tmp_path / "plain", protocol="topological")[0])


@pytest.mark.parametrize("security, signatures", [("key", False), ("certificates", True)])
def test_names_of_any_kind_can_be_deployed(tmp_path, security, signatures):
    file = tmp_path / "odd.yaml"
    file.write_text('processes: ["a/b", "ü ñ", "q\\"t", "1"]\n')
    site = tmp_path / "site"
    written = deploy(file, site, protocol="topological", security=security, signatures=signatures)
    assert [load(path)["name"] for path in written] == ["a/b", "ü ñ", 'q"t', "1"]
    assert {path.parent for path in written} == {tmp_path / "site"}
    for path in written:
        make_node(load(path))


def test_nothing_is_overwritten(tmp_path, hub):
    deploy(hub, tmp_path / "site", protocol="topological", security="plaintext")
    before = {path: path.read_bytes() for path in (tmp_path / "site").iterdir()}
    with pytest.raises(NodeError, match="nothing is overwritten"):
        deploy(hub, tmp_path / "site", protocol="zoned-ks", security="plaintext")
    assert {path: path.read_bytes() for path in (tmp_path / "site").iterdir()} == before


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--address", "zoe=h:1"], "an address is given for 'zoe'"),
        (["--first-port", "65535"], "give a lower one"),
        (["--protocol", "ks"], "invalid choice"),
        (["--address", "a"], "NAME=HOST:PORT"),
        (["--signatures", "--security", "key"], "signed by the keys of certificates, and security is 'key'"),
    ],
)
def test_bad_wishes_are_refused_and_nothing_is_written(tmp_path, hub, arguments, said, capsys):
    try:
        code = main(["topology", "deploy", str(hub), "--out", str(tmp_path / "site"), *arguments])
    except SystemExit as ended:
        code = ended.code
    assert code == 2 and said in capsys.readouterr().err
    assert not (tmp_path / "site").exists()


def test_a_false_file_is_not_deployed(tmp_path, capsys):
    file = tmp_path / "false.yaml"
    file.write_text("processes: [a, b, c, d]\nlinks: [[a, b], [b, c], [c, d], [d, a]]\nseparators: [[a]]\n")
    assert main(["topology", "deploy", str(file), "--out", str(tmp_path / "site")]) == 2
    assert "is no separator" in capsys.readouterr().err and not (tmp_path / "site").exists()


def test_addresses_count_up_in_the_order_of_the_file():
    assert Addresses("h", 5, {"b": "x:1"}).of(["a", "b", "c"]) == {"a": "h:5", "b": "x:1", "c": "h:7"}
