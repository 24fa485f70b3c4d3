"""Daemons: each one's service, and the main program that opens its effects.

`mains` has one main program per daemon, and `common` the parts that they share. Main
programs alone read the environment; a service gets all that it needs as arguments.
"""
