"""Helper programs: run on nodes over SSH, by administrators, or by developers."""
