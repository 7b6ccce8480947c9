"""Readers of the data sets, one file each, and of their file formats."""
