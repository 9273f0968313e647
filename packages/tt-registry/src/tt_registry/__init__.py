"""Which Tenstorrent model class serves which architecture, and what it can do."""
