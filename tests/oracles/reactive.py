"""The protocols whose machines send, forward or number messages on their own, not only when asked to."""

NAMES = (
    "acknowledged",
    "agreed",
    "causal-total",
    "cbcast",
    "flooding",
    "histories",
    "phased",
    "psync",
    "sequencer",
    "topological",
    "zoned-ks",
)
