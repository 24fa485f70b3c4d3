"""Resources of the remote API, by subject."""
