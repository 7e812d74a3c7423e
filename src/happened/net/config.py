"""A node's configuration file: TOML, every key checked by name and type.

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

Paths are relative to the file.
"""

import tomllib
from dataclasses import fields
from pathlib import Path
from types import UnionType
from typing import TYPE_CHECKING, Any

from ..core.errors import CausalityError
from ..ordering import DEFAULT
from .errors import NodeError
from .identity import MutualTls, SharedKey
from .limits import Limits, WhenFull
from .nats_security import CONFIG_FILES, CONFIG_TLS, connect_options
from .node import Node
from .transport import Guard, Plaintext, Transport
from .udp_multicast import UdpMulticast

if TYPE_CHECKING:
    from .signatures import Signatures


class ConfigError(NodeError):
    """A configuration file is wrong; the text says which file, which key, and what is expected there."""


STRINGS = (
    "name", "cluster", "listen", "protocol", "topology", "journal", "trace", "computation", "metrics",
    "tracker",
)  # fmt: skip
TABLES = ("peers", "groups", "security", "options", "limits", "nats", "medium", "signatures")
KEYS = (*STRINGS, "members", "flush", "expiry", "full", *TABLES)
MEDIUM = {
    "group": str, "interface": str, "key": str, "ttl": int, "datagram": int, "repair": float, "beat": float
}  # fmt: skip
SECURITY = ("plaintext", "key", "authority", "certificate", "private_key")
SIGNATURES = ("key", "members", "authority")


def load(path: Path) -> dict[str, Any]:
    """Read a file and check its keys and types; paths in the result are joined to the file's directory."""
    try:
        config = tomllib.loads(path.read_text())
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: is not TOML: {error}") from error
    _check(path, config)
    for key in ("topology", "journal", "trace"):
        if key in config:
            config[key] = str(path.parent / config[key])
    for key in ("key", "authority", "certificate", "private_key"):
        if key in config.get("security", {}):
            config["security"][key] = str(path.parent / config["security"][key])
    nats = config.get("nats", {})
    for table, keys in ((nats, CONFIG_FILES), (nats.get("tls", {}), CONFIG_TLS)):
        table |= {key: str(path.parent / table[key]) for key in keys if key in table}
    if "key" in config.get("medium", {}):
        config["medium"]["key"] = str(path.parent / config["medium"]["key"])
    signatures = config.get("signatures", {})
    signatures |= {key: str(path.parent / value) for key, value in signatures.items()}
    return config


def _check(path: Path, config: dict[str, Any]) -> None:
    _known(path, "", config, KEYS)
    if "name" not in config:
        raise ConfigError(f"{path}: `name` is missing; every node needs one")
    for key in STRINGS:
        _typed(path, key, config.get(key, ""), str, "a string")
    _typed(path, "flush", config.get("flush", True), bool, "true or false")
    _typed(path, "expiry", config.get("expiry", 0), int | float, "a number of seconds")
    _check_full(path, config.get("full", {}))
    for key in TABLES:
        _typed(path, key, config.get(key, {}), dict, f"a table, [{key}]")
    for peer, address in config.get("peers", {}).items():
        _typed(path, f"peers.{peer}", address, str, 'an address, "host:port"')
    for where, names in (("members", config.get("members", [])), *_groups(config)):
        _typed(path, where, names, list, "a list of names")
        for name in names:
            _typed(path, where, name, str, "a list of names")
    _known(path, "security.", config.get("security", {}), SECURITY)
    for key, value in config.get("security", {}).items():
        _typed(path, f"security.{key}", value, str, "a string")
    nats = config.get("nats", {})
    _known(path, "nats.", nats, ("servers", "stream", "replicas", "broadcast", "token", *CONFIG_FILES, "tls"))
    for key in ("token", *CONFIG_FILES):
        _typed(path, f"nats.{key}", nats.get(key, ""), str, "a string")
    _typed(path, "nats.tls", nats.get("tls", {}), dict, "a table, [nats.tls]")
    _known(path, "nats.tls.", nats.get("tls", {}), CONFIG_TLS)
    for key, value in nats.get("tls", {}).items():
        _typed(path, f"nats.tls.{key}", value, str, "a file")
    servers = nats.get("servers", "")
    for server in servers if isinstance(servers, list) else [servers]:
        _typed(path, "nats.servers", server, str, "a URL, or a list of them")
    _typed(path, "nats.stream", nats.get("stream", ""), str, "a string")
    _typed(path, "nats.replicas", nats.get("replicas", 1), int, "a number of servers")
    _typed(path, "nats.broadcast", nats.get("broadcast", False), bool, "true or false")
    _check_medium(path, config.get("medium"))
    _check_signatures(path, config.get("signatures"))
    _known(path, "limits.", config.get("limits", {}), [field.name for field in fields(Limits)])


def _check_full(path: Path, full: Any) -> None:
    policies = [each.value for each in WhenFull]
    expected = f"{', '.join(policies)}, or a table of these, [full]"
    _typed(path, "full", full, str | dict, expected)
    for where, policy in (
        [("full", full)] if isinstance(full, str) else [(f"full.{k}", v) for k, v in full.items()]
    ):
        if policy not in policies:
            raise ConfigError(f"{path}: {where} is {policy!r}, not one of {', '.join(policies)}")


def _check_medium(path: Path, medium: dict[str, Any] | None) -> None:
    if medium is None:
        return
    _known(path, "medium.", medium, MEDIUM)
    if "group" not in medium:
        raise ConfigError(f'{path}: medium.group is missing, as in group = "239.255.7.1:7400"')
    for key, value in medium.items():
        kind = MEDIUM[key]
        expected = {str: "a string", int: "a whole number", float: "a number of seconds"}[kind]
        _typed(
            path,
            f"medium.{key}",
            float(value) if kind is float and type(value) is int else value,
            kind,
            expected,
        )


def _check_signatures(path: Path, signatures: dict[str, Any] | None) -> None:
    if signatures is None:
        return
    _known(path, "signatures.", signatures, SIGNATURES)
    for key in SIGNATURES:
        if key not in signatures:
            raise ConfigError(
                f"{path}: signatures.{key} is missing; [signatures] needs {', '.join(SIGNATURES)}"
            )
        _typed(path, f"signatures.{key}", signatures[key], str, "a path")


def _groups(config: dict[str, Any]) -> list[tuple[str, Any]]:
    return [(f"groups.{group}", names) for group, names in config.get("groups", {}).items()]


def _known(path: Path, prefix: str, table: dict[str, Any], known: Any) -> None:
    for key in table:
        if key not in known:
            raise ConfigError(f"{path}: {prefix}{key} is no setting; there are: {', '.join(known)}")


def _typed(path: Path, key: str, value: Any, kind: type | UnionType, expected: str) -> None:
    if not isinstance(value, kind):
        raise ConfigError(f"{path}: {key} is {value!r}, not {expected}")


def make_node(config: dict[str, Any]) -> Node:
    """Make the node that a configuration of `load` describes; it is not started."""
    transport = _transport(config)
    return Node(
        config["name"],
        cluster=config.get("cluster", ""),
        peers=config.get("peers", {}),
        listen=config.get("listen", "127.0.0.1:0"),
        protocol=config.get("protocol", DEFAULT),
        options=config.get("options"),
        tracker=config.get("tracker"),
        expiry=config.get("expiry"),
        topology=config.get("topology"),
        members=config.get("members"),
        groups=config.get("groups"),
        journal=config.get("journal"),
        flush=config.get("flush", True),
        trace=config.get("trace"),
        computation=config.get("computation", ""),
        guard=_guard(config) if transport is None else None,
        transport=transport,
        limits=Limits(**config.get("limits", {})),
        medium=UdpMulticast(**config["medium"]) if "medium" in config else None,
        full=config.get("full", WhenFull.WAIT),
        signatures=_signatures(config),
    )


def _signatures(config: dict[str, Any]) -> "Signatures | None":
    if "signatures" not in config:
        return None
    from .signatures import Signatures  # which needs cryptography

    return Signatures(config["name"], **config["signatures"])


def _guard(config: dict[str, Any]) -> Guard:
    security = config.get("security", {})
    if security.keys() == {"plaintext"}:
        if security["plaintext"] not in ("loopback", "anywhere"):
            raise ConfigError(
                f'security.plaintext is "loopback" or "anywhere", not {security["plaintext"]!r}'
            )
        return Plaintext(anywhere=security["plaintext"] == "anywhere")
    if security.keys() == {"key"}:
        return SharedKey(security["key"])
    if security.keys() == {"authority", "certificate", "private_key"}:
        return MutualTls(
            config["name"],
            authority=security["authority"],
            certificate=security["certificate"],
            key=security["private_key"],
        )
    raise ConfigError(
        "[security] needs one of: plaintext; key; or authority, certificate and private_key together. "
        f"It has: {', '.join(security) or 'nothing'}"
    )


def _transport(config: dict[str, Any]) -> Transport | None:
    if "nats" not in config:
        return None
    try:
        from .nats import NatsTransport
        from .nats_broadcast import NatsBroadcast
    except ImportError as error:
        raise NodeError(f"[nats] needs the extra `nats`: pip install 'happened[nats]' ({error})") from error
    given = config["nats"]
    nats = {key: given[key] for key in ("servers", "stream", "replicas") if key in given}
    nats |= connect_options(given)
    try:
        return (NatsBroadcast if config["nats"].get("broadcast") else NatsTransport)(**nats)
    except TypeError as error:
        raise CausalityError(f"[nats]: {error}") from error
