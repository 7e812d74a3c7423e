"""The vocabulary of all other rooms: names, destination sets, effects, clocks, orders, errors."""
