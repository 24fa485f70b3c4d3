"""Out-of-band helpers: programs that switch machines."""
