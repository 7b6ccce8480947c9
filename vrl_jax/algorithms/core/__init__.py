"""The building blocks of the algorithms."""
