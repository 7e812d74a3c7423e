"""Fast construction of named tuples that are made for every message."""

new = tuple.__new__
"""`new(Name, (a, b))` takes a third of the time of `Name(a, b)`, which is Python code. It checks nothing."""
