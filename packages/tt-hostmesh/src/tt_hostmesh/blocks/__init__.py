"""Models that put out blocks of tokens: Llama, whose device runs several greedy steps for one call."""
