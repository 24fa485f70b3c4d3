"""Units that move instances between nodes, groups and clusters."""
