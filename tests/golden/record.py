"""Record the golden fixtures of this folder.

They were made by version 0.1.0, before its protocols, nodes and pipeline were rebuilt, and stand for what is
in the world: frames on links, journals and snapshots on disks, tables that others read. Later versions must
read them; they are not made again. Run this against that version only, from the root of a checkout of it
(commit 9febf6d), since it also uses that version's private parts and the oracles of its tests:

    PYTHONPATH=tests .venv/bin/python tests/golden/record.py
"""

import happened
from golden import record_machines, record_nodes, record_tables

MADE_BY = "0.1.0"

if __name__ == "__main__":
    if happened.__version__ != MADE_BY:
        raise SystemExit(f"golden fixtures are made by version {MADE_BY}, and this is {happened.__version__}")
    record_machines.record()
    record_nodes.record()
    record_tables.record()
