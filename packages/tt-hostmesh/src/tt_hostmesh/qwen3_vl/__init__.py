"""Qwen 3-VL in torch: a vision tower whose layers speak to the first layers of the decoder."""
