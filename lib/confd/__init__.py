"""Public names of confd for programs of others; see `ganeti.protocols.confd`."""
