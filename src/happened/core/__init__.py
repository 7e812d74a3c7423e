"""The vocabulary every other room speaks: names, destination sets, effects, events, clocks, errors."""
