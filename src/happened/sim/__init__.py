"""Protocols in virtual time: a discrete-event driver, and every interleaving of every small program."""
