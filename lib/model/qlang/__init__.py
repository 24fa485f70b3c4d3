"""The filter language of queries.

A filter is a list that begins with its operator. `parse` converts the text form that
users write into a filter; `compile_` converts a filter into a function of a row. The
set of fields belongs to `ganeti.master.query`; the arguments of list commands belong to
`ganeti.commands.cli`.
"""

from ganeti.model.qlang.evaluate import Leaf, Predicate, compile_, requested_names
from ganeti.model.qlang.parser import MAX_DEPTH, check, fields_of, glob_regex, parse

__all__ = [
    "MAX_DEPTH",
    "Leaf",
    "Predicate",
    "check",
    "compile_",
    "fields_of",
    "glob_regex",
    "parse",
    "requested_names",
]
