"""``burnin``: try a cluster with instances that are created, worked on and removed.

`settings` parses the command line, `steps` holds the steps and the opcodes of each,
`rounds` runs the steps, `main` asks confd and guests. See burnin(8).
"""
