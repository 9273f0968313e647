"""Qwen 3.5 in torch: gated delta rule layers with their state in slots, full attention every n-th layer."""
