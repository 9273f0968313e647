"""Detection, mesh, options, configuration rules and device lifecycle for Tenstorrent."""
