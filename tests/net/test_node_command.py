"""happened node: configuration, lines in, lines out, clean end."""

import json
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from netcluster import free_ports

from happened.cli import main
from happened.net.config import ConfigError, load, make_node
from happened.trace import read

LIMITS = "[limits]\nfirst_retry = 0.02\nlast_retry = 0.2\nlinger = 2.0\n"


@pytest.fixture
def configs(tmp_path):
    ports = dict(zip("ab", free_ports(2), strict=True))
    for me, other in ("ab", "ba"):
        (tmp_path / f"{me}.toml").write_text(
            f'name = "{me}"\nlisten = "127.0.0.1:{ports[me]}"\njournal = "{me}.journal"\ntrace = "trace"\n'
            f'[peers]\n{other} = "127.0.0.1:{ports[other]}"\n'
            f'[groups]\nall = ["a", "b"]\n[security]\nplaintext = "loopback"\n{LIMITS}'
        )
    return tmp_path


class Command:
    def __init__(self, config, *options):
        self.process = subprocess.Popen(
            [sys.executable, "-m", "happened", "node", "--config", str(config), *options],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def say(self, **said):
        self.process.stdin.write(json.dumps(said) + "\n")
        self.process.stdin.flush()

    def hear(self):
        return json.loads(self.process.stdout.readline())

    def end(self):
        """What was still said, and the log."""
        out, log = self.process.communicate(timeout=30)
        return [json.loads(line) for line in out.splitlines()], [
            json.loads(line) for line in log.splitlines()
        ]


def test_lines_are_sent_delivered_and_judged(configs, capsys):
    a, b = Command(configs / "a.toml"), Command(configs / "b.toml")
    a.say(to="b", text="héllo")
    assert a.hear() == {"sent": "a:1"}
    assert b.hear() == {"number": 1, "message": "a:1", "sender": "a", "text": "héllo"}
    b.say(to=["all"], payload="//4=")
    heard = [b.hear(), b.hear()]
    assert {"sent": "b:1"} in heard and any(each.get("payload") == "//4=" for each in heard)
    assert a.hear()["payload"] == "//4="
    a.say(to="b", text="whenever", ordered=False)
    assert a.hear() == {"sent": "a:2"} and b.hear()["text"] == "whenever"
    a.say(to="b", text="?", ordered="no")
    assert "true or false" in a.hear()["error"]
    a.say(show="members")
    assert a.hear() == {"members": ["a", "b"]}
    a.say(to="zoe", text="?")
    assert "no process named 'zoe'" in a.hear()["error"]
    a.process.stdin.write("nonsense\n")
    a.process.stdin.flush()
    assert "error" in a.hear()
    b.process.send_signal(signal.SIGTERM)
    _, log = b.end()
    assert b.process.returncode == 0
    assert [line["event"] for line in log][:1] == ["started"] and log[-1]["event"] == "closed"
    a.end()  # stdin ends
    assert a.process.returncode == 0
    assert main(["check", str(configs / "trace")]) == 0
    assert "3 deliveries examined" in capsys.readouterr().out


def test_bytes_that_are_no_text_are_answered_and_do_not_hang(configs):
    command = [sys.executable, "-m", "happened", "node", "--config", str(configs / "a.toml")]
    said = b'\xff\xfe\n{"show": "members"}\n'
    done = subprocess.run(command, input=said, capture_output=True, timeout=30)
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert "error" in answers[0] and answers[1] == {"members": ["a", "b"]} and done.returncode == 0


def test_a_line_that_is_nested_too_deep_is_answered(configs):
    a = Command(configs / "a.toml")
    a.process.stdin.write("[" * 100_000 + "\n")
    a.process.stdin.flush()
    answer = a.hear()
    assert "recursion" in answer["error"] and len(answer["line"]) == 200
    a.say(show="members")
    assert a.hear() == {"members": ["a", "b"]}
    a.end()
    assert a.process.returncode == 0


def test_metrics_on_a_port_in_use_are_a_clear_error(configs):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        config = configs / "a.toml"
        where = f"127.0.0.1:{taken.getsockname()[1]}"
        config.write_text(f'metrics = "{where}"\n{config.read_text()}')
        command = [sys.executable, "-m", "happened", "node", "--config", str(config)]
        done = subprocess.run(command, input="", capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    (said,) = (line for line in done.stderr.splitlines() if not line.startswith("{"))
    assert f"metrics: cannot listen on {where}" in said


def test_without_stdin_the_node_ends(configs):
    command = f'exec "{sys.executable}" -m happened node --config "{configs / "a.toml"}" <&-'
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, timeout=30)
    assert done.returncode == 0 and "Traceback" not in done.stderr


def test_with_manual_ack_a_message_comes_again_until_it_is_acknowledged(configs):
    a, b = Command(configs / "a.toml", "--stay"), Command(configs / "b.toml", "--manual-ack")
    a.say(to="b", text="1")
    a.say(to="b", text="2")
    assert [b.hear()["number"] for _ in range(2)] == [1, 2]
    b.say(ack=1)
    assert b.hear() == {"acknowledged": 1}
    b.say(ack=1)
    assert "not waiting" in b.hear()["error"]
    b.process.kill()
    b.end()
    b = Command(configs / "b.toml", "--manual-ack")
    assert b.hear() == {"number": 2, "message": "a:2", "sender": "a", "text": "2"}
    b.end()
    a.process.terminate()
    a.end()
    assert a.process.returncode == 0


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("name = ", "not TOML"),
        ("", "`name` is missing"),
        ('name = "a"\ncolour = "red"', "colour is no setting"),
        ('name = "a"\nlisten = 7', "listen is 7, not a string"),
        ('name = "a"\n[peers]\nb = 7', "peers.b is 7, not an address"),
        ('name = "a"\n[groups]\ng = "b"', "groups.g is 'b', not a list"),
        ('name = "a"\n[security]\nplaintext = "everywhere"', "loopback"),
        ('name = "a"\n[security]\nkey = "k"\nplaintext = "loopback"', "needs one of"),
        ('name = "a"', "needs one of"),
        ('name = "a"\n[security]\nplaintext = "loopback"\n[limits]\nheld = -1', "limit 'held' is -1"),
        ('name = "a"\n[security]\nplaintext = "loopback"\n[limits]\nhold = 1', "limits.hold is no setting"),
        ('name = "a"\nprotocol = "no"\n[security]\nplaintext = "loopback"', "no ordering protocol"),
        ('name = "a"\nfull = "drop"', "full is 'drop', not one of wait, refuse, park"),
        ('name = "a"\n[full]\nb = "drop"', "full.b is 'drop', not one of wait, refuse, park"),
        ('name = "a"\nfull = 7', "full is 7, not wait, refuse, park, or a table of these, [full]"),
        ('name = "a"\nfull = "park"\n[security]\nplaintext = "loopback"', "give the node one"),
        ('name = "a"\n[nats]\nservers = 7', "nats.servers is 7, not a URL"),
        ('name = "a"\n[nats]\nservers = [7]', "nats.servers is 7, not a URL"),
        ('name = "a"\n[nats]\nstream = 7', "nats.stream is 7, not a string"),
        ('name = "a"\n[nats]\nreplicas = "3"', "nats.replicas is '3', not a number"),
        ('name = "a"\nlisten = "127.0.0.1:1²"\n[security]\nplaintext = "loopback"', "is no address"),
        ('name = "a"\n[peers]\nb = "127.0.0.1:1²"\n[security]\nplaintext = "loopback"', "is no address"),
        ('name = "a"\nmetrics = "127.0.0.1:1²"\n[security]\nplaintext = "loopback"', "is no address"),
        ('name = "a"\n[options]\nx = 1\n[security]\nplaintext = "loopback"', "ks has no option 'x'"),
        (
            'name = "a"\ntrace = "node.toml/t"\n[security]\nplaintext = "loopback"',
            "cannot hold the trace of 'a'",
        ),
    ],
)
def test_a_wrong_configuration_says_what_and_where(tmp_path, capsys, text, why):
    (tmp_path / "node.toml").write_text(text)
    assert main(["node", "--config", str(tmp_path / "node.toml")]) == 2
    said = capsys.readouterr().err
    assert why in said and "Traceback" not in said
    assert len([line for line in said.splitlines() if not line.startswith("{")]) == 1  # besides the log


EVERYTHING = """\
name = "alice"
cluster = "production"               # the same everywhere; a node of another one is refused
listen = "127.0.0.1:7001"
protocol = "ks"                      # default; `options` are the protocol's own
# topology = "site.yaml"             # instead of members, for protocols that relay: docs/topology.md
journal = "alice.journal"            # without it, the node's state ends with it
flush = true                         # each commit waits for the disk, not only for the system
trace = "trace"                      # a directory; all nodes may share it
tracker = "p3-reduced"               # timestamps for relevant events; the same everywhere
# expiry = 3600                      # seconds in which all is delivered; for protocols with histories
metrics = "127.0.0.1:9101"           # Prometheus text at /metrics
members = ["alice", "bob", "carol"]  # the same everywhere; default: all names, sorted

full = "wait"                        # while a peer's outbox is full; or a table, [full] bob = "park"

[peers]
bob = "127.0.0.1:7002"
carol = "127.0.0.1:7003"

[groups]
team = ["bob", "carol"]

[security]                           # one of:
plaintext = "loopback"               # or "anywhere": believe every name
key = "lab.key"                      # shared key, from `happened node keys shared`
authority = "ca.pem"                 # mutual TLS, from `happened node keys`
certificate = "alice.pem"
private_key = "alice.key"

[signatures]                         # messages are signed by their origin; on all nodes, with a cluster
key = "alice.key"                    # from `happened node keys`
members = "certificates"             # a folder with NAME.pem of every process
authority = "ca.pem"

[nats]                               # instead of `listen` and `security`
servers = ["nats://127.0.0.1:4222"]  # tls://… with [nats.tls]
credentials = "alice.creds"          # or nkey = "alice.nk", or token = "…": who we are to the broker
key = "lab.key"                      # from `happened node keys shared`: others cannot speak for nodes
tls = {authority = "ca.pem", certificate = "alice.pem", private_key = "alice.key"}
broadcast = true                     # a multicast is one message for all its destinations

[medium]                             # the same beside TCP links: UDP multicast
group = "239.255.7.1:7400"
interface = "127.0.0.1"
# key = "lab.key"                    # needed with certificates; default: the shared key

[limits]                             # those of limits.py
outbox = 67108864
"""


def test_a_file_with_everything_is_a_configuration(tmp_path):
    (tmp_path / "node.toml").write_text(EVERYTHING)
    found = load(tmp_path / "node.toml")
    assert found["journal"] == str(tmp_path / "alice.journal") and found["groups"] == {
        "team": ["bob", "carol"]
    }
    found.pop("nats")
    assert found.pop("signatures") == {
        "key": str(tmp_path / "alice.key"),
        "members": str(tmp_path / "certificates"),
        "authority": str(tmp_path / "ca.pem"),
    }
    with pytest.raises(ConfigError, match="needs one of"):  # it shows all three kinds at once
        make_node(found)
    found["security"] = {"plaintext": "loopback"}
    assert make_node(found).name == "alice"


def test_the_configuration_in_the_documentation_is_one(tmp_path):
    text = (Path(__file__).parents[2] / "docs" / "runtime.md").read_text()
    (tmp_path / "node.toml").write_text(text.split("```toml\n")[1].split("```")[0])
    assert make_node(load(tmp_path / "node.toml")).name == "alice"


def test_relevant_events_have_timestamps_and_are_in_the_trace(configs):
    for me in "ab":
        file = configs / f"{me}.toml"
        file.write_text(f'tracker = "p3-reduced"\n{file.read_text()}')
    a, b = Command(configs / "a.toml"), Command(configs / "b.toml")
    a.say(relevant="asks")
    assert a.hear() == {"relevant": {"process": "a", "seq": 1, "vector": {"a": 1}, "predecessors": []}}
    a.say(to="b", text="?")
    assert a.hear() == {"sent": "a:2"}
    assert b.hear()["text"] == "?"
    b.say(relevant="answers")
    told = b.hear()["relevant"]
    assert (told["vector"], told["predecessors"]) == ({"a": 1, "b": 1}, [["a", 1]])
    a.end()
    b.end()
    labels = [row["label"] for row in read(configs / "trace").to_pylist() if row["relevant"]]
    assert sorted(labels) == ["answers", "asks"]
