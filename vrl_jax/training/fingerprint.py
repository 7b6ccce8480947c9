"""The config, code and data of a run, in a form that its processes can compare and its checkpoints store."""

import functools
import json
import pathlib
from typing import Any

import jax
import ml_collections
import numpy as np

import vrl_jax
from vrl_jax.config.table import Role, role_of
from vrl_jax.errors import DataError, ForeignCheckpoint
from vrl_jax.system.storage import checksum
from vrl_jax.tasks.task import Task
from vrl_jax.training.restore import read_metadata, stored_steps

_PACKAGE = pathlib.Path(vrl_jax.__file__).parent


def run_fields(config: ml_collections.ConfigDict) -> dict[str, Any]:
  """The config, without the fields that may differ between processes, and the versions of the code.

  >>> from vrl_jax.config.fields import default_config
  >>> fields = run_fields(default_config())
  >>> fields['algorithm'], 'version of jax' in fields, 'data_dir' in fields
  ('vrl_sgd', True, False)
  """
  fields = json.loads(config.to_json_best_effort())
  versions = {'jax': jax.__version__, 'numpy': np.__version__, 'vrl_jax': _version()}
  shared = {name: value for name, value in fields.items() if role_of(name) is not Role.BOOKKEEPING}
  return shared | {f'version of {name}': version for name, version in versions.items()}


def data_fields(task: Task) -> dict[str, str]:
  """Type, shape and CRC-32 of each array of the task.

  >>> task = Task(None, None, None, {'x': np.zeros((3, 2), np.float32)}, np.arange(3))
  >>> data_fields(task)['data train/x']
  'float32[3, 2] a3c1ca20'
  """
  trees = {'train': task.train, 'labels': task.labels, 'test': task.test, 'frozen': task.frozen}
  leaves = [
    (jax.tree_util.keystr(path, simple=True, separator='/'), np.asarray(x))
    for path, x in jax.tree_util.tree_leaves_with_path(trees)
  ]
  return {f'data {name}': f'{x.dtype}{list(x.shape)} {checksum(x):08x}' for name, x in leaves}


def require_same_data(workdir: pathlib.Path, data: dict[str, str], data_dir: str | None = None) -> None:
  """Raises ForeignCheckpoint if the newest checkpoint of a run is of other data.

  Checkpoints of commit 14bef54 and earlier have no fingerprint of the data, and are of any.

  Args:
    workdir: the run directory.
    data: `data_fields` of the task.
    data_dir: where the data were found, for the message.

  >>> import tempfile
  >>> from vrl_jax.training.checkpoint import CheckpointWriter
  >>> metadata = {'train_loss': 0.5, 'seconds': 1.5, 'config': {}, 'data': {'data labels': 'int32[60000] fe3c2bd5'}}
  >>> with tempfile.TemporaryDirectory() as name:
  ...   workdir = pathlib.Path(name)
  ...   with CheckpointWriter.open(workdir) as writer:
  ...     writer.save(40, {'x': np.zeros(8)}, metadata)
  ...   require_same_data(workdir, metadata['data'])
  ...   try:
  ...     require_same_data(workdir, {'data labels': 'int32[60000] 66b5b1ae'})
  ...   except ForeignCheckpoint as error:
  ...     print(str(error).removeprefix(name).split('; ')[0])
  : the checkpoint of step 40 is from other data: data labels=int32[60000] fe3c2bd5 there and int32[60000] 66b5b1ae now
  """
  for step in reversed(stored_steps(workdir)):
    try:
      metadata = read_metadata(workdir, step)
    except DataError:  # reported when the run is restored
      continue
    stored = metadata.get('data', data)
    names = sorted(stored.keys() | data.keys())
    differing = [
      f'{name}={stored.get(name)} there and {data.get(name)} now'
      for name in names
      if stored.get(name) != data.get(name)
    ]
    if not differing:
      return
    if data_dir != (data_dir_there := metadata['config'].get('data_dir')):
      differing.append(f'data_dir={data_dir_there!r} there and {data_dir!r} now')
    raise ForeignCheckpoint(
      f'{workdir}: the checkpoint of step {step} is from other data: {"; ".join(differing)}; '
      'restore the data to resume, or choose another --workdir'
    )


@functools.cache
def _version():
  """The version of the package and a checksum of its source files, which can change between versions."""
  sources = 0
  for path in sorted(_PACKAGE.rglob('*.py')):
    sources = checksum(path.relative_to(_PACKAGE).as_posix().encode() + path.read_bytes(), sources)
  return f'{vrl_jax.__version__} ({sources:08x})'
