"""Running hook scripts around opcodes, on many nodes."""
