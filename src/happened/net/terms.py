"""The terms on which two nodes work together: the part of a hello from configuration and version.

Each end tells its terms before frames flow, and refuses a peer whose terms it cannot work with. A term that
is not told is not compared. A cluster's name is only compared if both have one, so that it can be introduced
node by node. Signatures are on all nodes or none: a node that tells none makes none.

Versions   a node speaks all versions of the link from `lowest` to `highest`; two ends need one in common.
Features   a node uses an optional part of the link's format only towards a peer that has told its name. So
           nodes can be upgraded one after the other, in any order.
"""

import hashlib
import inspect
import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from ..core.errors import LocalProtocolError
from ..ordering import Machine
from .errors import PeerRefused

LOWEST, HIGHEST = 1, 1
CHECKSUM = "checksum"
"""After the hellos, records of plaintext links carry a checksum."""
FEATURES = frozenset({CHECKSUM})
MAX_TEXT = 255
MAX_FEATURES = 64


class Terms(NamedTuple):
    """A node's conditions for a peer, as it tells them; the defaults are those of a node that tells none."""

    cluster: str = ""  # the name of the system; empty: it has none
    founders: str = ""  # the digest of the first members, told to peers that are among them
    options: str = ""  # the digest of the ordering protocol's options
    frame: int = 0  # the longest frame that the node takes, in bytes; 0: it does not say
    lowest: int = LOWEST  # versions of the link
    highest: int = HIGHEST
    features: frozenset[str] = frozenset()
    signatures: str = ""  # the signature scheme of messages; empty: they are not signed

    def check_system(self, peer: str, theirs: "Terms") -> None:
        """Raise PeerRefused if a peer is of another system, or of a version too far from ours."""
        if theirs.lowest > self.highest or theirs.highest < self.lowest:
            raise PeerRefused(
                f"{peer!r} speaks versions {theirs.lowest} to {theirs.highest} of links, and this node "
                f"{self.lowest} to {self.highest}: upgrade the older one"
            )
        if _differ(self.cluster, theirs.cluster):
            raise PeerRefused(
                f"{peer!r} is of cluster {theirs.cluster!r}, and this node of {self.cluster!r}: correct the "
                "address, or give both the same `cluster`"
            )

    def check_setup(self, peer: str, theirs: "Terms") -> None:
        """Raise PeerRefused if a peer of our system was set up differently from us."""
        if _differ(self.founders, theirs.founders):
            raise PeerRefused(
                f"{peer!r} was started with other members than this node: give all nodes the same members, "
                "in the same order"
            )
        if _differ(self.options, theirs.options):
            raise PeerRefused(
                f"{peer!r} has other options of the ordering protocol: give all nodes the same `options`"
            )
        if self.signatures != theirs.signatures:
            raise PeerRefused(
                f"{peer!r} signs messages by {theirs.signatures or 'nothing'}, and this node by "
                f"{self.signatures or 'nothing'}: give all nodes `signatures`, or none"
            )

    def to_json(self) -> dict[str, Any]:
        """The terms that differ from those of a node that tells none."""
        said = {key: value for key, value in self._asdict().items() if value != self._field_defaults[key]}
        if self.features:
            said["features"] = sorted(self.features)
        return said

    @classmethod
    def from_json(cls, said: Any) -> "Terms":
        """Raises TypeError or ValueError if these are not terms. Terms of later versions are ignored."""
        if not isinstance(said, dict):
            raise TypeError("terms are a table")
        known = {key: said[key] for key in cls._fields if key in said}
        if not isinstance(features := known.get("features", []), list) or len(features) > MAX_FEATURES:
            raise ValueError("features are a list of names")
        terms = cls(**{**known, "features": frozenset(features)})
        for text in (terms.cluster, terms.founders, terms.options, terms.signatures, *terms.features):
            if not isinstance(text, str) or len(text) > MAX_TEXT:
                raise ValueError("terms are told by names and digests")
        for number in (terms.frame, terms.lowest, terms.highest):
            if type(number) is not int or number < 0:
                raise ValueError("versions and limits are numbers")
        return terms


def _differ(ours: str, theirs: str) -> bool:
    return bool(ours and theirs) and ours != theirs


def check_cluster(cluster: str) -> str:
    """The name of a cluster, if a hello can tell it; empty: none."""
    if not isinstance(cluster, str) or len(cluster) > MAX_TEXT or not cluster.isprintable():
        raise LocalProtocolError(
            f"{cluster!r} is no name of a cluster: at most {MAX_TEXT} characters, all printable"
        )
    return cluster


def digest_of_options(machine: Machine, options: Mapping[str, Any]) -> str:
    """The digest of options that differ from their defaults: so defaults may be written out, and a version
    with one more option agrees with one that does not know it. It leaves out how a sender frames its own
    messages for a medium, as receivers take both forms, and its place, which the topology tells."""
    parameters = inspect.signature(type(machine)).parameters
    usual = {name: parameter.default for name, parameter in parameters.items()}
    left_out = (machine.facts.copies.common_frame, "place")
    told = {
        name: value
        for name, value in options.items()
        if name not in left_out and (name not in usual or value != usual[name])
    }
    return digest(told)


def digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:32]
