"""The master's writer of the configuration: edits, reservations, checks, ssconf."""
