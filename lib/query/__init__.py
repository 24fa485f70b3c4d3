"""Query fields and filters over a snapshot; live data only when a field asks."""
