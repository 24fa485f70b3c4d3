"""``vcluster drill``: dead nodes on real daemons, under a guest that proves its runs.

`scenarios` has the drills, `site` the cluster that they are played on, `faults` what is
done to its nodes; `runner` plays and judges drills, `witness` reads what the guest has
written. The node death itself is the product's: ``ganeti.decisions.repair.node_death``
decides it.
"""
