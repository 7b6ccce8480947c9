"""Runs of a config: training loop, checkpoints, run directory, sweeps."""
