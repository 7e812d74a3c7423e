"""Named tuples on the way of each message, where every microsecond counts."""

new = tuple.__new__
"""`new(Name, (a, b))` takes a third of the time of `Name(a, b)`, which is Python code, and checks nothing."""
