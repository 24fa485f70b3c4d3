"""Addresses, host names, URLs, and the network of this machine."""
