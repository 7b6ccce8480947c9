"""The algorithms; a new one is a file here and a line in ALGORITHMS."""

from vrl_jax.algorithms.as_optax import AsOptaxState as AsOptaxState
from vrl_jax.algorithms.as_optax import as_optax as as_optax
from vrl_jax.algorithms.base import AXIS as AXIS
from vrl_jax.algorithms.base import Algorithm as Algorithm
from vrl_jax.algorithms.base import precede as precede
from vrl_jax.algorithms.easgd import EASGDState as EASGDState
from vrl_jax.algorithms.easgd import easgd as easgd
from vrl_jax.algorithms.local_sgd import local_sgd as local_sgd
from vrl_jax.algorithms.s_sgd import s_sgd as s_sgd
from vrl_jax.algorithms.vrl_sgd import VRLSGDState as VRLSGDState
from vrl_jax.algorithms.vrl_sgd import vrl_sgd as vrl_sgd

ALGORITHMS = {
  's_sgd': s_sgd,
  'local_sgd': local_sgd,
  'easgd': easgd,
  'vrl_sgd': vrl_sgd,
}
