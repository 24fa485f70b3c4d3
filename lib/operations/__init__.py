"""Logical units: one package per object, one module per opcode.

Each module holds one `base.LogicalUnit`; `units` is the table of all of them. What
uses a socket, a clock or a thread directly does not belong here.
"""
