"""The remote API: a table of resources, and the server's application.

``model`` and the modules of ``resources`` describe every resource and method as values;
``resource_table`` is the whole table. ``requests`` turns a request into opcodes without
any input or output. ``openapi`` and ``schemas`` make the OpenAPI document of the table.
``rights`` decides who may do what. The application and its handlers call the master
daemon. The main program of the daemon is ``ganeti.daemons.mains.rapi``; the clients are
in ``ganeti.protocols.rapi``.
"""
