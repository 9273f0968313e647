"""Qwen 2.5-VL in torch: a vision tower before Llama's layers, and rotary positions in three axes."""
