"""The store while no master daemon runs: opened, saved, restored and moved."""
