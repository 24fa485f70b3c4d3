"""``burnin``: try a cluster with instances that are created, worked on and removed.

`settings` parses the command line, `steps` holds the steps and the opcodes of each,
`probes` asks confd and guests, `rounds` runs the steps. See burnin(8).
"""
