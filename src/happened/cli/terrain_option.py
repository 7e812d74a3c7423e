"""The option `--topology FILE` of the commands that simulate, replay and explore."""

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..sim.terrain import Terrain


def read_terrain(path: Path | None) -> "Terrain | None":
    """The terrain of a topology file; None if no file is given."""
    if path is None:
        return None
    from ..sim.terrain import Terrain
    from ..topology import derive, load

    topology = load(path)
    applications = topology.applications
    names = (*applications, *(name for name in topology.graph if name in topology.routers))
    return Terrain(str(path), names, len(applications), derive(topology, names=names).places)
