"""The filter language of queries.

A filter is a list that begins with its operator; `parse` makes one from the text
form that users write, `from_arguments` from the words of a list command, `compile_`
turns one into a function of a row. Which fields exist belongs to `ganeti.query`.
"""

from ganeti.qlang.arguments import from_arguments, is_filter_text
from ganeti.qlang.evaluate import Leaf, Predicate, compile_, requested_names
from ganeti.qlang.globs import glob_regex
from ganeti.qlang.parser import parse
from ganeti.qlang.structure import check, fields_of

__all__ = [
    "Leaf",
    "Predicate",
    "check",
    "compile_",
    "fields_of",
    "from_arguments",
    "glob_regex",
    "is_filter_text",
    "parse",
    "requested_names",
]
