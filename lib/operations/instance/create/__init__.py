"""Units that create, import, reserve and install instances."""
