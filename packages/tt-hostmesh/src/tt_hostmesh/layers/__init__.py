"""What models whose layers differ are made of: a cache by layer, one step's rows, attention, rotary positions."""
