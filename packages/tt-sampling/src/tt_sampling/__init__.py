"""Where each row of a batch is sampled, device or host, and why."""
