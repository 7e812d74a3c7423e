"""Answers for people to look at: one HTML page that needs nothing but a browser."""
