"""Public names of the remote API for programs of others."""
