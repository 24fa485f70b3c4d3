"""Texts: parsed, sorted, escaped, searched and shown."""
