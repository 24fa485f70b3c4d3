"""The gnt-* commands: one package a program, one module a subcommand.

What several commands share belongs to ``ganeti.cli``; what a command asks for is done
by the master daemon.
"""
