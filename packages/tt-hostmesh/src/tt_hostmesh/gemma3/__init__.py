"""Gemma 3, text: sliding and full attention by turns."""
