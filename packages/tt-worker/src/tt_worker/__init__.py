"""Rows, step inputs, model adapter and overlapped decode for Tenstorrent model classes."""
