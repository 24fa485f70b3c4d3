"""Shared fakes of the doors and of other parts, for tests."""
