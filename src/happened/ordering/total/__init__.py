"""Protocols that keep total order, one per file."""
