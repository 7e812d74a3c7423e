"""Studies: tables of simulated runs, and what they show."""
