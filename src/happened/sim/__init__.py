"""Runs protocols in virtual time (a discrete-event simulator) and in every interleaving (an explorer)."""
