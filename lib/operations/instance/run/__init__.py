"""Units that start, stop, rename and remove instances."""
