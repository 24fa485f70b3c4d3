"""Programs that run on a node while it joins, leaves or upgrades."""
