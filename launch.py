"""Trains what a config describes: python launch.py --config configs/quadratic.py [--workdir DIR] [--config.field=value …].

Without --workdir a dated folder under runs/ is used. The same command with the same --workdir goes on where it stopped.
"""

import sys

if __name__ == '__main__':
  try:
    from vrl_jax.launching import main
  except KeyboardInterrupt:  # importing JAX takes a while
    sys.exit(130)
  sys.exit(main(sys.argv))
