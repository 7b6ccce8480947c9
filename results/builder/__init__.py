"""The code of `python -m results`."""
