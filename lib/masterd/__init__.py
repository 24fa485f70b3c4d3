"""The master daemon as a service: LUXI methods over queue, store and nodes."""
