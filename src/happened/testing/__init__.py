"""For tests of applications: nodes in one process, over links that are slow, reorder senders, and break.

    network = MemoryNetwork(seed=7, delay=0.01, cuts=0.05)
    async with network.nodes("alice", "bob", "carol") as (alice, bob, carol):
        await alice.multicast(["bob", "carol"], b"hello")

`happened.testing.fixtures` has the same as a pytest fixture. Nodes run in real time here; for virtual time,
`happened.sim` runs the protocols themselves.
"""

from .memory import MemoryNetwork, MemoryTransport

__all__ = ["MemoryNetwork", "MemoryTransport"]
