"""Communication graphs, the separators in them, and routes that keep application messages in order.

`load` reads a topology from YAML or GraphML and refuses one with false claims; `from_document` makes one
from nested lists and mappings, `from_traffic` from (sender, destinations) pairs; `useful` and `every` find
separators; `derive` gives each process its place in the routes.
"""

from pathlib import Path

from .checks import problems, refuse, single_points
from .communication import Topology, TopologyError, Zone, from_traffic
from .documents import from_document, read_graphml, read_yaml, to_document, write_graphml
from .routes import RoutingPlan, derive, verify
from .separators import NamedSeparator, every, reasons, useful

__all__ = [
    "READERS",
    "NamedSeparator",
    "RoutingPlan",
    "Topology",
    "TopologyError",
    "Zone",
    "derive",
    "every",
    "from_document",
    "from_traffic",
    "load",
    "problems",
    "read",
    "reasons",
    "refuse",
    "single_points",
    "to_document",
    "useful",
    "verify",
    "write_graphml",
]

READERS = {".yaml": read_yaml, ".yml": read_yaml, ".graphml": read_graphml, ".xml": read_graphml}


def read(path: Path) -> Topology:
    """Read a topology from a file without checking its claims."""
    reader = READERS.get(path.suffix.lower())
    if reader is None:
        raise TopologyError(f"{path}: not a kind of topology I know; give {', '.join(READERS)}")
    return reader(path)


def load(path: Path) -> Topology:
    """Read a topology from a file; raise TopologyError if one of its claims is false."""
    topology = read(path)
    refuse(topology, str(path))
    return topology
