"""``take-over``: a live cluster of another Ganeti 3 becomes one of this implementation.

`main` is the command on the master, `steps` the steps in both directions and `journal`
their record. `node` is the program ``take-over-node``, which each node runs over SSH
for the master; `runtimes` and `services` are its parts. Guests are not touched.
"""
