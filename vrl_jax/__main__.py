"""`python -m vrl_jax`: the same as `vrl-jax` and launch.py."""

import sys

from vrl_jax.cli.launch import console

if __name__ == '__main__':
  sys.exit(console())
