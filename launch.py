"""Trains what a config describes: python launch.py --config configs/quadratic.py [--workdir DIR] [--config.FIELD=VALUE …].

--help lists the configs and every field. Without --workdir the run directory is a dated one in runs/; rerun the same
command with the same --workdir to resume.
"""

import sys

if __name__ == '__main__':
  try:
    from vrl_jax.cli.launch import main
  except KeyboardInterrupt:  # importing JAX takes a while
    sys.exit(130)
  sys.exit(main(sys.argv))
