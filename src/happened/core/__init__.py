"""The vocabulary of all other rooms: names, destination sets, effects, events, clocks, errors."""
