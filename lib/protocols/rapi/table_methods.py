"""The client's methods that rows of the table make; their types are in the stub."""

from ganeti.protocols.rapi.caller import method_of
from ganeti.protocols.rapi.resource_table import RESOURCES
from ganeti.protocols.rapi.transport import Base


class TableMethods(Base):
    """One method per row that names one."""


for _row in RESOURCES:
    if _row.client is not None:
        setattr(TableMethods, _row.client.name, method_of(_row))
