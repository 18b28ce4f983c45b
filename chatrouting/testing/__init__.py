"""Test doubles for applications built on chatrouting."""
