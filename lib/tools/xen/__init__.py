"""Programs for guests of Xen: NICs, consoles, encrypted migration."""
