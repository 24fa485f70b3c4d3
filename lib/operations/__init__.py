"""Operations: opcodes carried out, one package per object.

Each opcode has a `base.LogicalUnit`; `unit_table` is the table of all of them, and
`mcpu` takes one through its phases. What uses a socket, a clock or a thread directly
does not belong here.
"""
