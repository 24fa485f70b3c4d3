"""Node calls about keys and certificates: who may call, and who may log in."""
