"""What people look at: tables, curves, pictures."""
