"""Gemma 3 and 4, text: sliding and full attention by turns."""
