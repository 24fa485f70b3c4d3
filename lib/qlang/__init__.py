"""The filter language of queries.

A filter is a list that begins with its operator; `parse` makes one from the text form
that users write, `compile_` turns one into a function of a row. Which fields exist
belongs to `ganeti.query`, how a list command uses its arguments to `ganeti.cli`.
"""

from ganeti.qlang.evaluate import Leaf, Predicate, compile_, requested_names
from ganeti.qlang.parser import glob_regex, parse
from ganeti.qlang.structure import check, fields_of

__all__ = [
    "Leaf",
    "Predicate",
    "check",
    "compile_",
    "fields_of",
    "glob_regex",
    "parse",
    "requested_names",
]
