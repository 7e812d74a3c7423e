"""Reports for people: one HTML page that needs nothing but a browser."""
