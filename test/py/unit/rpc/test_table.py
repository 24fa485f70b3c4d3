"""What nodes offer is what the table says."""

from ganeti import backend
from ganeti.rpc import table


def test_every_offered_procedure_takes_the_arguments_of_the_table():
    backend.load()
    for name, entry in backend.PROCEDURES.items():
        assert name in table.PROCEDURES, name
        assert len(entry.kinds) == len(table.PROCEDURES[name].args), name
