"""Studies: tables of simulated runs and of replays.

compare                   measures what each protocol costs on the same random schedule
advise                    finds what protocols would have cost on a recorded trace (survey, replay)
trackers                  measures what trackers cost on random computations, and on a recorded trace
growth, separator_study   large systems: control information in zones, and the networks of a paper
network_cost              finds what protocols would carry on the links of a topology

The simulator itself is in `sim`; results are printed in `cli` and drawn in `report`.
"""
