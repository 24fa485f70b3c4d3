"""The remote API: its resources, and clients of them.

``resource_table`` has a row per path and method, of which the server, the documents and
the methods of the client are made. ``api`` is the client with the names of Ganeti's
Python client, ``modern`` a client with typed results. Here is nothing of the server,
which is ``ganeti.daemons.rapi``. The protocol is documented in doc/rapi.rst and
doc/rapi-client.rst.
"""
