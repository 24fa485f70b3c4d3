"""Help texts, manual pages and completion, generated from the command tables."""
