"""Gemma 3 and 4: sliding and full attention by turns; of release 3 with images too."""
