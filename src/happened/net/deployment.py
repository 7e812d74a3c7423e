"""Makes, from one topology file, a directory from which every process of the topology can be started.

    DIR/FILE                   the topology, as it was given
    DIR/NAME.toml              the configuration of each process (config.py), including routers
    DIR/pki/, DIR/shared.key   certificates, or one key

The nodes write their journals and the trace beside these files. Nothing is overwritten.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from secrets import token_hex
from typing import NamedTuple
from urllib.parse import quote

from ..core.errors import CausalityError
from ..ordering import protocols
from . import identity
from .errors import NodeError
from .handshake import check_name
from .site import check_relays

CERTIFICATES, KEY, PLAINTEXT = "certificates", "key", "plaintext"
SECURITY = (CERTIFICATES, KEY, PLAINTEXT)


class Addresses(NamedTuple):
    """Where processes listen: at the address given, or else at `host`, on ports counted from `first_port`."""

    host: str = "127.0.0.1"
    first_port: int = 7001
    given: Mapping[str, str] = {}

    def of(self, names: Sequence[str]) -> dict[str, str]:
        if unknown := sorted(self.given.keys() - set(names)):
            raise NodeError(f"an address is given for {unknown[0]!r}, and the topology has no such process")
        last = self.first_port + len(names) - 1
        if not 0 < self.first_port <= last < 65_536:
            raise NodeError(
                f"{len(names)} processes need ports {self.first_port} to {last}; give a lower one"
            )
        ports = dict(zip(names, range(self.first_port, last + 1), strict=True))
        return {name: f"{self.host}:{port}" for name, port in ports.items()} | dict(self.given)


def deploy(
    file: Path,
    out: Path,
    *,
    protocol: str,
    security: str = CERTIFICATES,
    addresses: Addresses | None = None,
    signatures: bool = False,
) -> list[Path]:
    """Write the directory; returns the configuration files, in the order of the topology. `signatures`: nodes
    sign messages with the keys of their certificates."""
    from ..topology import derive, load  # topology needs networkx and PyYAML

    if signatures and security != CERTIFICATES:
        raise NodeError(f"messages are signed by the keys of certificates, and security is {security!r}")
    check_relays(protocols()[protocol], file)
    topology = load(file)
    names = derive(topology).names
    where = (addresses or Addresses()).of(names)
    configurations = {check_name(name): out / f"{quote(name, safe=' @+')}.toml" for name in names}
    for path in (out / file.name, *configurations.values()):
        if path.exists():
            raise NodeError(f"{path}: exists, and nothing is overwritten; give an empty directory")
    try:
        out.mkdir(parents=True, exist_ok=True)
        (out / file.name).write_bytes(file.read_bytes())
        secrets = _secrets(out, names, security)
        cluster = token_hex(8)  # two deployments of one file are different systems
        for name, path in configurations.items():
            peers = {peer: where[peer] for peer in names if topology.graph.has_edge(name, peer)}
            said = {"name": name, "cluster": cluster, "listen": where[name], "protocol": protocol}
            said |= {"topology": file.name, "journal": f"{path.stem}.journal", "trace": "trace"}
            text = _lines(said) + _table("peers", peers) + _table("security", secrets[name])
            if signatures:  # signatures need all certificates in one folder
                key, authority = secrets[name]["private_key"], secrets[name]["authority"]
                members = authority.rpartition("/")[0]
                signing = {"key": key, "members": members, "authority": authority}
                text += _table("signatures", signing)
            path.write_text(text)
    except OSError as error:
        raise NodeError(f"{out}: cannot be written: {error.strerror or error}") from error
    return list(configurations.values())


def _secrets(out: Path, names: Sequence[str], security: str) -> dict[str, dict[str, str]]:
    """The table `security` of each process's configuration; writes the files that the tables name."""
    if security == PLAINTEXT:
        return {name: {"plaintext": "loopback"} for name in names}
    if security == KEY:
        identity.make_key(out / "shared.key")
        return {name: {"key": "shared.key"} for name in names}
    if security != CERTIFICATES:
        raise CausalityError(f"no security is called {security!r}; there are: {', '.join(SECURITY)}")
    pki = out / "pki"
    identity.make_authority(pki)
    told = {}
    for name in names:
        identity.issue(pki, name)
        keys = ("authority", "certificate", "private_key")
        files = (path.relative_to(out).as_posix() for path in identity.paths(pki, name))
        told[name] = dict(zip(keys, files, strict=True))
    return told


def _table(name: str, values: Mapping[str, str]) -> str:
    return f"\n[{name}]\n{_lines(values)}"


def _lines(values: Mapping[str, str]) -> str:
    # A JSON string of printable characters is a basic string of TOML, and may be a key.
    lines = ""
    for key, value in values.items():
        is_bare = key.isascii() and key.replace("-", "").replace("_", "").isalnum()
        told = key if is_bare else json.dumps(key, ensure_ascii=False)
        lines += f"{told} = {json.dumps(value, ensure_ascii=False)}\n"
    return lines
