"""Histories: a cluster under a seeded schedule of faults, checked by machine afterwards.

Real daemons on isolated virtual nodes. Clients submit jobs and record what was
acknowledged, while a schedule kills, pauses and cuts off nodes, bends their clocks and
disks, and lets operators move the master role at the worst time. Then everything is
healed, and `rules` compares the records with what the cluster has.

`rules` and `schedule` are pure; `machines` are the nodes and their faults, `clients` the
load, `readers` ask confd on all candidates the whole time, `evidence` is what is read after
the healing, `play` a whole run.
"""
