"""The cluster as a value: frozen records, opcodes, their types and their text forms.

No module here decides, waits, or reads anything.
"""
