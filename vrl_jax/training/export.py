"""Exports the consensus model of a run for use without vrl_jax; the suffix of the file gives the format."""

import glob
import json
import os
import pathlib
import shutil
import struct
from collections.abc import Callable
from typing import Any

import flax.serialization
import flax.traverse_util
import jax
import numpy as np
import orbax.checkpoint as ocp

from vrl_jax.algorithms import Algorithm
from vrl_jax.errors import UserError
from vrl_jax.report.names import format_bytes
from vrl_jax.system.storage import atomic_path, expand_home
from vrl_jax.training.consensus import checkpoint_step, consensus_model
from vrl_jax.training.orbax_errors import cause, without_secondary_errors
from vrl_jax.training.restore import MAIN_PROCESS_ONLY

_SAFETENSORS = {
  **{'float64': 'F64', 'float32': 'F32', 'float16': 'F16', 'bfloat16': 'BF16', 'bool': 'BOOL'},
  **{f'{sign}int{bits}': f'{"U" if sign else "I"}{bits}' for sign in ('', 'u') for bits in (8, 16, 32, 64)},
}


def export_model(
  workdir: str | os.PathLike,
  path: str | os.PathLike,
  *,
  step: int | None = None,
  algorithm: Algorithm | None = None,
  params: Any = None,
  overwrite: bool = False,
) -> str:
  """Writes the consensus model of a run's checkpoint to a file that is read without vrl_jax.

  Args:
    workdir: the run directory; it is only read.
    path: the file, whose suffix gives the format: `.npz` and `.safetensors` have one array per parameter, named by its
      path, such as `Dense_0/kernel`; `.msgpack` (flax) and `.orbax` (a directory) have a tree. With batch normalisation
      there are `params` and `batch_stats`.
    step: the step of the checkpoint; None for the latest.
    algorithm: the algorithm, if it was given to the run as an object.
    params: a tree of arrays or shapes with the structure of the parameters; needed if they are not in dicts and lists.
    overwrite: whether to replace an existing file.

  Returns:
    A line that describes the file.

  Raises:
    UserError: there is no such checkpoint, or the file cannot be written.

  >>> import contextlib, io, tempfile, vrl_jax
  >>> config = vrl_jax.load_config('quadratic')
  >>> config.steps = 40
  >>> with tempfile.TemporaryDirectory() as workdir, contextlib.redirect_stdout(io.StringIO()):
  ...   summary = vrl_jax.train_and_evaluate(config, workdir)
  ...   line = export_model(workdir, f'{workdir}/model.npz')
  ...   x = np.load(f'{workdir}/model.npz')['params']
  >>> abs(float(x[0])) == summary['distance_to_optimum']
  True
  >>> line.partition(': ')[2].rpartition(', ')[0]
  'the consensus model of step 40, 1 parameter'
  """
  workdir, path = expand_home(workdir, 'workdir'), expand_home(path, 'path')
  step = checkpoint_step(workdir, step)
  _check_target(path, overwrite)
  model = consensus_model(workdir, step, algorithm=algorithm, params=params)
  content = model._asdict() if model.batch_stats else model.params
  try:
    if path.suffix == _ORBAX:
      _write_orbax(content, path)
    else:
      with atomic_path(path) as temporary:
        _WRITERS[path.suffix](content, temporary)
  except OSError as error:
    raise UserError(f'{path}: cannot write the file ({error.strerror or error})') from error
  count = sum(x.size for x in jax.tree.leaves(model.params))
  files = path.rglob('*') if path.is_dir() else [path]
  size = sum(file.stat().st_size for file in files if file.is_file())
  parameters = '1 parameter' if count == 1 else f'{count:,} parameters'
  return f'{path}: the consensus model of step {step}, {parameters}, {format_bytes(size)}'


def _check_target(path, overwrite):
  if path.suffix not in FORMATS:
    raise UserError(f'{path}: the suffix must be one of {", ".join(FORMATS)}')
  if path.exists() and not overwrite:
    raise UserError(f'{path}: already exists; use --force (in Python overwrite=True) to overwrite it')


def _by_name(tree):
  """The arrays by the names of their paths; a single array is called 'params'."""
  leaves = jax.tree_util.tree_leaves_with_path(tree)
  return {jax.tree_util.keystr(path, simple=True, separator='/') or 'params': x for path, x in leaves}


def _nested(tree):
  """The arrays in dicts, as every reader knows them."""
  return tree if hasattr(tree, 'dtype') else flax.traverse_util.unflatten_dict(_by_name(tree), sep='/')


def _write_npz(tree, path):
  # NumPy stores bfloat16 as bytes without a type; float32 has all of its values.
  known = {name: x.astype(np.float32) if x.dtype.kind == 'V' else x for name, x in _by_name(tree).items()}
  with open(path, 'wb') as file:
    np.savez(file, **known)


def _write_msgpack(tree, path):
  path.write_bytes(flax.serialization.to_bytes(_nested(tree)))


def _write_safetensors(tree, path):
  """The format is a length, a JSON header of that length, and the arrays: https://github.com/huggingface/safetensors."""
  header: dict[str, Any] = {}
  end = 0
  arrays = {name: np.asarray(x, order='C') for name, x in sorted(_by_name(tree).items())}
  for name, x in arrays.items():
    if str(x.dtype) not in _SAFETENSORS:
      raise UserError(f'{name} is {x.dtype}, which .safetensors cannot hold; export to .npz')
    offsets = [end, end := end + x.nbytes]
    header[name] = {'dtype': _SAFETENSORS[str(x.dtype)], 'shape': list(x.shape), 'data_offsets': offsets}
  text = json.dumps(header, separators=(',', ':')).encode()
  text += b' ' * (-len(text) % 8)  # so that the arrays are aligned
  with open(path, 'wb') as file:
    file.write(struct.pack('<Q', len(text)) + text)
    for x in arrays.values():
      file.write(x.tobytes())


def _write_orbax(tree, path):
  if not path.parent.is_dir():  # Orbax would make it
    raise FileNotFoundError(2, os.strerror(2))
  nested = _nested(tree)
  with (
    without_secondary_errors(),
    ocp.Checkpointer(ocp.StandardCheckpointHandler(), multiprocessing_options=MAIN_PROCESS_ONLY) as checkpointer,
  ):
    args = ocp.args.StandardSave(nested if isinstance(nested, dict) else {'params': nested})
    try:
      checkpointer.save(path.absolute(), args=args, force=True)
    except Exception as error:  # Orbax and TensorStore raise errors of many types
      for unfinished in path.parent.glob(f'{glob.escape(path.name)}.orbax-checkpoint-tmp*'):
        shutil.rmtree(unfinished, ignore_errors=True)
      raise UserError(f'{path}: cannot write the file ({cause(error)})') from error


_ORBAX = '.orbax'
_WRITERS: dict[str, Callable[[Any, pathlib.Path], None]] = {
  '.npz': _write_npz,
  '.msgpack': _write_msgpack,
  '.safetensors': _write_safetensors,
}
FORMATS = (*_WRITERS, _ORBAX)
"""The suffixes of the formats."""
