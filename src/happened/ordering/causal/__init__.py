"""Protocols that keep causal order, one file for each paper."""
