"""The algorithms; a new one is a file here and a line in ALGORITHMS."""

from vrl_jax.algorithms.as_optax import AsOptaxState as AsOptaxState
from vrl_jax.algorithms.as_optax import as_optax as as_optax
from vrl_jax.algorithms.base import AXIS as AXIS
from vrl_jax.algorithms.base import Algorithm as Algorithm
from vrl_jax.algorithms.base import precede as precede
from vrl_jax.algorithms.cocod_sgd import CoCoDSGDState as CoCoDSGDState
from vrl_jax.algorithms.cocod_sgd import cocod_sgd as cocod_sgd
from vrl_jax.algorithms.d2 import PreviousState as PreviousState
from vrl_jax.algorithms.d2 import d2 as d2
from vrl_jax.algorithms.easgd import EASGDState as EASGDState
from vrl_jax.algorithms.easgd import easgd as easgd
from vrl_jax.algorithms.extra import extra as extra
from vrl_jax.algorithms.finite import SkipState as SkipState
from vrl_jax.algorithms.finite import skip_if_any_not_finite as skip_if_any_not_finite
from vrl_jax.algorithms.local_sgd import local_sgd as local_sgd
from vrl_jax.algorithms.outer import OuterState as OuterState
from vrl_jax.algorithms.outer import diloco as diloco
from vrl_jax.algorithms.outer import with_outer_optimizer as with_outer_optimizer
from vrl_jax.algorithms.s_sgd import s_sgd as s_sgd
from vrl_jax.algorithms.scaffold import ScaffoldState as ScaffoldState
from vrl_jax.algorithms.scaffold import scaffold as scaffold
from vrl_jax.algorithms.slowmo import SlowMoState as SlowMoState
from vrl_jax.algorithms.slowmo import slowmo as slowmo
from vrl_jax.algorithms.vrl_adaptive import VRLAdaptiveState as VRLAdaptiveState
from vrl_jax.algorithms.vrl_adaptive import vrl_adaptive as vrl_adaptive
from vrl_jax.algorithms.vrl_sgd import VRLSGDState as VRLSGDState
from vrl_jax.algorithms.vrl_sgd import vrl_sgd as vrl_sgd

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
