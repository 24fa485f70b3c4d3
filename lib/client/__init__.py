"""The gnt-* commands: one package a program, one module a subcommand."""
