"""A software mesh: runs the Tenstorrent serving stack with no Tenstorrent hardware."""
