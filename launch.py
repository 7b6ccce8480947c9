"""Trains what a config describes: python launch.py --config configs/quadratic.py [--workdir DIR] [--config.FIELD=VALUE …].

--list describes the configs and algorithms, --help lists every field. Without --workdir the run directory is a dated one
in runs/; rerun the same command with the same --workdir to resume.
"""

import sys

if __name__ == '__main__':
  try:
    from vrl_jax.__main__ import console
  except KeyboardInterrupt:
    sys.exit(130)
  sys.exit(console())
