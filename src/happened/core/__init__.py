"""The vocabulary that all other packages of `happened` share, built on the standard library alone.

roster         names of processes and their indices; places, their places in a communication graph
destinations   sets of processes as bit sets; lanes, vectors of numbers packed into one int
clocks         vector clocks; orders, the delivery orders that a protocol can promise
effects        what a machine asks its driver to do; telling, rules of a paper for a story
errors         what can go wrong; exit_codes of commands; extras of `pip install`

Not here: protocols (ordering, tracking), wire formats (wire), and anything that reads a clock or does I/O.
"""
