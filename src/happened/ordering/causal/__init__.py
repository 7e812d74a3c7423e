"""Protocols that keep causal order, one per file."""
