"""Studies: tables of simulated runs and of replays."""
