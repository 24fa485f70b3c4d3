"""Disks of instances: records, creation, mirrors, replacement, conversion, growth."""
