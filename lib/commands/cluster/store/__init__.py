"""Commands of ``gnt-cluster`` about the store: backup, migration, lost changes."""
