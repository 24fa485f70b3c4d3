"""A store without a disk: the real engine over a backend in memory.

It passes the same contract tests as the sqlite engine, see
``unit/store/test_contract.py``. Like the real one it calls ``done`` from its own
thread and durable state follows a moment after `commit_soon`; ``commit([])`` waits
until all that was asked for is durable. Close it at the end of the test.
"""

from ganeti.store.memory import MemoryBackend, open_memory

__all__ = ["MemoryBackend", "open_memory"]
