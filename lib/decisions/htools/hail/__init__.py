"""The allocator protocol: requests in, answers out.

Here: the reader of requests and one solver per mode. Not here: the decisions
themselves (``alloc``, ``balance``, ``capacity``), and input and output (program
``hail``, package ``ganeti.master.iallocator``).
"""
