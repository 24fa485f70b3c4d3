"""Certificates, and the authority of a cluster that issues them."""
