"""Streams of events for clients of ``GET /2/events``."""
