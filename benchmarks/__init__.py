"""Benchmarks: `make bench`, or `python -m benchmarks [name …] [--quick]`. See README.md."""
