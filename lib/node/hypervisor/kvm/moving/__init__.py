"""Live migration of a KVM guest: both ends, and its progress."""
