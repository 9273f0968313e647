"""tt-metal's model calls, once for every model of the host mesh."""
