"""The remote API: the server's application.

The resources are rows of ``ganeti.protocols.rapi.resource_table``. ``requests`` turns a
request into opcodes without any input or output. ``openapi`` and ``schemas`` make the
OpenAPI document of the table. ``access`` and ``authentication`` decide who may do what.
The application and its handlers call the master daemon. The main program of the daemon
is ``ganeti.daemons.mains.rapi``.
"""
