"""Strict mode: every call is held against the contract before the device sees it."""
