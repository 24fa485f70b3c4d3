"""``vcluster drill``: dead nodes on real daemons, under a guest that proves its runs.

`scenarios` has the drills, `site` the cluster that they are played on, `runner` plays
and judges one, `proof` reads what the guest has written, `report` sums up. The node
death itself is the product's: ``ganeti.decisions.repair.node_death`` decides it.
"""
