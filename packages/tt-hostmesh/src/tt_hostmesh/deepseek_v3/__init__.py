"""DeepSeek V3: a latent cache, experts in groups."""
