"""The remote API: a table of resources, the server's application, and its clients.

``model`` and the ``resources_*`` modules describe every resource and method as values;
``resources`` is the whole table. ``requests`` turns a request into opcodes without any
input or output. ``openapi`` and ``schemas`` make the OpenAPI document of the table.
``users``, ``access`` and ``throttle`` decide who may do what. The
application and its handlers call the master daemon. The main program of the daemon is
``ganeti.daemons.mains.rapi``. ``client`` needs none of the others.
"""
