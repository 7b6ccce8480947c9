"""Restores a run of several processes."""

import pathlib
from typing import Any

import jax
import numpy as np
import orbax.checkpoint as ocp

from vrl_jax.cluster import processes
from vrl_jax.engine.placement import Placement
from vrl_jax.errors import DataError
from vrl_jax.training.orbax_errors import cause
from vrl_jax.training.parts import checksums, from_rows, row_shapes
from vrl_jax.training.restore import Restored, damaged_checkpoint, read_leaves, require_same_leaves, restore_newest


def restore_for_all(
  workdir: pathlib.Path, template: Any, config: dict[str, Any], placement: Placement, together: bool = False
) -> Restored | None:
  """As `restore_newest`, for a run of any number of processes, with the state on the devices, leaves [D, N/D, ...].

  Process 0 looks for the checkpoint.

  Args:
    workdir: the run directory.
    template: the shapes of the state, [N, ...].
    config: the fields of the run's config.
    placement: of the run.
    together: whether all processes have the directory. Then each reads the parts of its devices; else process 0 reads
      and sends the state to the others.

  >>> import tempfile
  >>> from vrl_jax.engine.placement import place_workers
  >>> with tempfile.TemporaryDirectory() as workdir:
  ...   print(restore_for_all(pathlib.Path(workdir), {'x': np.zeros(2)}, {}, place_workers(workers=2, devices=1)))
  None
  """
  if together:
    return _restore_together(workdir, row_shapes(template, placement), config, placement)
  found = restore_newest(workdir, template, config) if processes.is_main() else None
  step_and_metadata = processes.from_main(lambda: found and [found.step, found.metadata])
  if step_and_metadata is None:
    return None
  step, metadata = step_and_metadata
  state = found.state if found else jax.tree.map(lambda x: np.zeros(x.shape, x.dtype), template)
  return Restored(step, placement.split(placement.from_main(state), placement.state_sharding), metadata)


def _restore_together(workdir, template, config, placement):
  """Process 0 says which checkpoints all read, until one is intact or none is left."""
  found = None
  if processes.is_main():

    def read(workdir, step, template, metadata):
      require_same_leaves(workdir, step, template, metadata)
      processes.from_main(lambda: [step, metadata])
      return _read_parts(workdir, step, template, metadata)

    found = restore_newest(workdir, template, config, read)
    processes.from_main(lambda: None)
  else:
    while order := processes.from_main(lambda: None):
      step, metadata = order
      try:
        found = Restored(step, _read_parts(workdir, step, template, metadata), metadata)
      except DataError:  # process 0 has it too, and decides what follows
        found = None
  return found and found._replace(state=from_rows(found.state, placement))


def _read_parts(workdir, step, template, metadata):
  """The parts of this process's devices; all processes raise DataError if one of them cannot read its parts."""
  index = processes.index()
  alone = ocp.options.MultiprocessingOptions(
    primary_host=index, active_processes={index}, barrier_sync_key_prefix=f'process_{index}'
  )
  state, error = None, None
  try:
    state = read_leaves(workdir, step, template, alone)
  except Exception as caught:  # Orbax and TensorStore raise errors of many types
    error = cause(caught)
  errors = [one for one in processes.collect(error) if one]
  if not errors and checksums(state) != [leaf[3] for leaf in metadata['leaves']]:
    errors = ['checksums differ']
  if errors:
    raise damaged_checkpoint(workdir, step, ValueError(errors[0]))
  return state
