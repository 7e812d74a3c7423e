"""What happened, and what happened before it.

Causal and total message order with the least metadata, and exact causality of recorded traces.
Importing this package needs nothing but the standard library; each room imports what it uses.
"""

__version__ = "0.1.0"
