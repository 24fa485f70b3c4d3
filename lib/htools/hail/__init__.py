"""The allocator protocol: requests in, answers out.

Here: the reader of requests and one solver for each mode. Not here: the decisions
themselves (``alloc``, ``balance``, ``capacity``), and input and output, which belong to
the program ``hail`` and to ``ganeti.iallocator``.
"""
