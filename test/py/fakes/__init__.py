"""Shared fakes of the effect interfaces and of other parts, for tests."""
