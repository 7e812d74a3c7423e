"""Protocols that keep total order, one file for each paper."""
