"""Studies: tables of simulated runs and of replays.

compare                   what each protocol costs on the same random schedule
advise                    what protocols would have cost on a recorded trace (survey, replay)
trackers                  what trackers cost on random computations, and on a recorded trace
growth, separator_study   large systems: control information in zones, and the networks of a paper
network_cost              what protocols would carry on the links of a topology

Not here: the simulator itself (sim), and what is printed or drawn (cli, report).
"""
