"""Output of commands: tables, lists, info trees, errors and hints."""
