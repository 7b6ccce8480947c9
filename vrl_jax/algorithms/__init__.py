"""The algorithms. To add one, write a file here and add a line to ALGORITHMS."""

from vrl_jax.cpu.thread_pool import guard_against_deadlock as _guard_against_deadlock

# Sets environment variables (PJRT_NPROC, XLA_FLAGS) that JAX reads once, when its backend starts. Nothing else protects a
# user's own loop over several virtual CPU devices from a dead-lock: see vrl_jax/cpu/thread_pool.py.
_guard_against_deadlock()

# ruff: noqa: E402
from vrl_jax.algorithms.as_optax import AsOptaxState, as_optax, state_axes
from vrl_jax.algorithms.cocod_sgd import CoCoDSGDState, cocod_sgd
from vrl_jax.algorithms.core.algorithm import Algorithm
from vrl_jax.algorithms.core.axes import AXIS
from vrl_jax.algorithms.core.general_state import GeneralState
from vrl_jax.algorithms.d2 import PreviousState, d2
from vrl_jax.algorithms.easgd import EASGDState, easgd
from vrl_jax.algorithms.extra import extra
from vrl_jax.algorithms.float32_master import Float32MasterState, with_float32_master
from vrl_jax.algorithms.local_sgd import local_sgd
from vrl_jax.algorithms.outer_optimizer import OuterState, diloco, with_outer_optimizer
from vrl_jax.algorithms.overlapped import overlapped
from vrl_jax.algorithms.precede import precede
from vrl_jax.algorithms.quantised import quantised
from vrl_jax.algorithms.s_sgd import s_sgd
from vrl_jax.algorithms.scaffold import ScaffoldState, scaffold
from vrl_jax.algorithms.skip_not_finite import SkipState, skip_if_any_not_finite
from vrl_jax.algorithms.slowmo import SlowMoState, slowmo
from vrl_jax.algorithms.streaming import streaming
from vrl_jax.algorithms.vrl_adaptive import VRLAdaptiveState, vrl_adaptive
from vrl_jax.algorithms.vrl_sgd import VRLSGDState, vrl_sgd

__all__ = [
  'ALGORITHMS',
  'AXIS',
  'Algorithm',
  'AsOptaxState',
  'CoCoDSGDState',
  'EASGDState',
  'Float32MasterState',
  'GeneralState',
  'OuterState',
  'PreviousState',
  'ScaffoldState',
  'SkipState',
  'SlowMoState',
  'VRLAdaptiveState',
  'VRLSGDState',
  'as_optax',
  'cocod_sgd',
  'd2',
  'diloco',
  'easgd',
  'extra',
  'local_sgd',
  'overlapped',
  'precede',
  'quantised',
  's_sgd',
  'scaffold',
  'skip_if_any_not_finite',
  'slowmo',
  'state_axes',
  'streaming',
  'vrl_adaptive',
  'vrl_sgd',
  'with_float32_master',
  'with_outer_optimizer',
]

ALGORITHMS = {
  's_sgd': s_sgd,
  'local_sgd': local_sgd,
  'easgd': easgd,
  'vrl_sgd': vrl_sgd,
  'vrl_adaptive': vrl_adaptive,
  'cocod_sgd': cocod_sgd,
  'scaffold': scaffold,
  'slowmo': slowmo,
  'diloco': diloco,
  'd2': d2,
  'extra': extra,
}
