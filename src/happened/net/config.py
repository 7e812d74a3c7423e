"""A node's configuration file: TOML, every key checked by name and type. docs/runtime.md shows one.

Paths are relative to the file.
"""

import tomllib
from dataclasses import fields
from pathlib import Path
from types import UnionType
from typing import Any, NamedTuple

from ..core.errors import CausalityError
from .errors import NodeError
from .identity import MutualTls, SharedKey
from .limits import Limits, WhenFull
from .nats_security import connect_options
from .node import Node
from .transport import Guard, Plaintext, Transport
from .udp_multicast import UdpMulticast


class ConfigError(NodeError):
    """A configuration file is wrong; the text says which file, which key, and what is expected there."""


class _Setting(NamedTuple):
    kind: type | UnionType
    expected: str
    is_path: bool = False


POLICIES = [each.value for each in WhenFull]
TABLES = ("peers", "groups", "security", "options", "limits", "nats", "medium", "signatures")
TEXT, FILE = _Setting(str, "a string"), _Setting(str, "a string", is_path=True)
NUMBER, SECONDS = _Setting(int, "a whole number"), _Setting(int | float, "a number of seconds")
TRUTH, NAMES = _Setting(bool, "true or false"), _Setting(list, "a list of names")
SETTINGS: dict[str, dict[str, _Setting]] = {
    "": {
        **dict.fromkeys(("name", "cluster", "listen", "protocol", "computation", "metrics", "tracker"), TEXT),
        **dict.fromkeys(("topology", "journal", "trace"), FILE),
        "members": NAMES,
        "flush": TRUTH,
        "expiry": SECONDS,
        "full": _Setting(str | dict, f"{', '.join(POLICIES)}, or a table of these, [full]"),
        **{table: _Setting(dict, f"a table, [{table}]") for table in TABLES},
    },
    "security": {
        "plaintext": TEXT,
        **dict.fromkeys(("key", "authority", "certificate", "private_key"), FILE),
    },
    "nats": {
        "servers": _Setting(str | list, "a URL, or a list of them"),
        "stream": TEXT,
        "replicas": _Setting(int, "a number of servers"),
        "broadcast": TRUTH,
        "token": TEXT,
        **dict.fromkeys(("credentials", "nkey", "key"), FILE),
        "tls": _Setting(dict, "a table, [nats.tls]"),
    },
    "nats.tls": dict.fromkeys(
        ("authority", "certificate", "private_key"), _Setting(str, "a file", is_path=True)
    ),
    "medium": {
        "group": TEXT,
        "interface": TEXT,
        "key": FILE,
        "ttl": NUMBER,
        "datagram": NUMBER,
        "repair": SECONDS,
        "beat": SECONDS,
    },
    "signatures": dict.fromkeys(("key", "members", "authority"), _Setting(str, "a path", is_path=True)),
    "limits": dict.fromkeys((field.name for field in fields(Limits)), _Setting(object, "checked by Limits")),
}
"""The settings that each table may have, "" being the whole file; a table comes before its subtables."""


def load(path: Path) -> dict[str, Any]:
    """Read a file and check its keys and types; paths in the result are joined to the file's directory."""
    try:
        config = tomllib.loads(path.read_text())
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: is not TOML: {error}") from error
    for place, settings in SETTINGS.items():
        table: dict[str, Any] = config
        for part in filter(None, place.split(".")):
            table = table.get(part, {})
        prefix = f"{place}." if place else ""
        for key in table:
            if key not in settings:
                raise ConfigError(f"{path}: {prefix}{key} is no setting; there are: {', '.join(settings)}")
            _check(path, prefix + key, table[key], settings[key])
            if settings[key].is_path:
                table[key] = str(path.parent / table[key])
    _check_values(path, config)
    return config


def _check(path: Path, key: str, value: Any, setting: _Setting) -> None:
    if not isinstance(value, setting.kind) or (isinstance(value, bool) and setting.kind is not bool):
        raise ConfigError(f"{path}: {key} is {value!r}, not {setting.expected}")


def _check_values(path: Path, config: dict[str, Any]) -> None:
    """Check the values within lists and tables, and the keys that a table must have."""
    if "name" not in config:
        raise ConfigError(f"{path}: `name` is missing; every node needs one")
    for peer, address in config.get("peers", {}).items():
        _check(path, f"peers.{peer}", address, _Setting(str, 'an address, "host:port"'))
    groups = {f"groups.{group}": names for group, names in config.get("groups", {}).items()}
    for where, names in {"members": config.get("members", []), **groups}.items():
        _check(path, where, names, NAMES)
        for name in names:
            _check(path, where, name, NAMES._replace(kind=str))
    servers = config.get("nats", {}).get("servers", [])
    for server in servers if isinstance(servers, list) else []:
        _check(path, "nats.servers", server, SETTINGS["nats"]["servers"]._replace(kind=str))
    full = config.get("full", {})
    policies = {"full": full} if isinstance(full, str) else {f"full.{peer}": full[peer] for peer in full}
    for where, policy in policies.items():
        if policy not in POLICIES:
            raise ConfigError(f"{path}: {where} is {policy!r}, not one of {', '.join(POLICIES)}")
    if "medium" in config and "group" not in config["medium"]:
        raise ConfigError(f'{path}: medium.group is missing, as in group = "239.255.7.1:7400"')
    needed = SETTINGS["signatures"] if "signatures" in config else ()
    for key in needed:
        if key not in config["signatures"]:
            raise ConfigError(f"{path}: signatures.{key} is missing; [signatures] needs {', '.join(needed)}")


def make_node(config: dict[str, Any]) -> Node:
    """Make the node that a configuration of `load` describes; it is not started."""
    given = {key: value for key, value in config.items() if key not in ("metrics", "security", "nats")}
    given = {"peers": {}} | given | {"limits": Limits(**config.get("limits", {}))}
    if "medium" in config:
        given["medium"] = UdpMulticast(**config["medium"])
    if "signatures" in config:
        from .signatures import Signatures  # signatures.py needs cryptography

        given["signatures"] = Signatures(config["name"], **config["signatures"])
    ways = {"transport": _nats(config["nats"])} if "nats" in config else {"guard": _guard(config)}
    return Node(**given, **ways)


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
        authority, certificate, key = (security[each] for each in ("authority", "certificate", "private_key"))
        return MutualTls(config["name"], authority=authority, certificate=certificate, key=key)
    raise ConfigError(
        "[security] needs one of: plaintext; key; or authority, certificate and private_key together. "
        f"It has: {', '.join(security) or 'nothing'}"
    )


def _nats(given: dict[str, Any]) -> Transport:
    try:
        from .nats import NatsTransport
        from .nats_broadcast import NatsBroadcast
    except ImportError as error:
        raise NodeError(f"[nats] needs the extra `nats`: pip install 'happened[nats]' ({error})") from error
    options = connect_options(given)
    options |= {key: given[key] for key in ("servers", "stream", "replicas") if key in given}
    try:
        return (NatsBroadcast if given.get("broadcast") else NatsTransport)(**options)
    except TypeError as error:
        raise CausalityError(f"[nats]: {error}") from error
