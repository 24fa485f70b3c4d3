"""Jobs of commands: planned, submitted and waited for."""
