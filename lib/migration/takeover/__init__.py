"""``take-over``: a live cluster of another Ganeti 3 becomes one of this implementation.

`main` is the command on the master, `steps` the steps in both directions and `journal`
their record. `node` is the program ``take-over-node``, which each node runs over SSH
for the master; `runtimes`, `kept` and `services` are its parts. `findings` lists the
parts of a cluster that this release does not offer. Guests are not touched.
"""
