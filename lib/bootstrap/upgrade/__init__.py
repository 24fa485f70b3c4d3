"""``gnt-cluster upgrade``: all nodes change to another release that they have.

`preparation` checks, `steps` are the steps on the master and `journal` their record.
`node` is what each node does, by the program ``upgrade-node`` of the old or of the new
release, and `access` calls it. Guests are not touched.
"""
