"""Writes the metrics to TensorBoard and Weights & Biases as well; both are off by default."""

import contextlib
import importlib.util
import os
import pathlib
import secrets
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import ml_collections

from vrl_jax.cluster import processes
from vrl_jax.errors import UserError
from vrl_jax.system.storage import replace_text

Write = Callable[[dict[str, Any]], None]

_PACKAGES = {'tensorboard': 'tensorboardX', 'wandb': 'wandb'}


def require_packages(config: ml_collections.ConfigDict) -> None:
  """Raises UserError if the config asks for a writer whose package is not installed.

  >>> require_packages(ml_collections.ConfigDict({'tensorboard': False, 'wandb': False}))
  >>> if importlib.util.find_spec('wandb') is None:
  ...   try:
  ...     require_packages(ml_collections.ConfigDict({'wandb': True}))
  ...   except UserError as error:
  ...     assert str(error) == 'wandb=True needs the package wandb: pip install wandb'
  """
  for field, package in _PACKAGES.items():
    if config.get(field) and importlib.util.find_spec(package) is None:
      raise UserError(f'{field}=True needs the package {package}: pip install {package}')


@contextlib.contextmanager
def open_writers(
  config: ml_collections.ConfigDict, workdir: pathlib.Path, lines: Iterable[dict[str, Any]]
) -> Iterator[Write]:
  """Opens the writers that the config asks for: `tensorboard`, `wandb`.

  Args:
    config: the run's config.
    workdir: the run directory.
    lines: the log lines so far, if the run is resumed; without writers they are not read.

  Yields:
    A function that writes the numbers of a log line.

  >>> import tempfile
  >>> config = ml_collections.ConfigDict({'tensorboard': importlib.util.find_spec('tensorboardX') is not None})
  >>> with tempfile.TemporaryDirectory() as name, open_writers(config, pathlib.Path(name), lines=[]) as write:
  ...   write({'step': 10, 'train_loss': 0.25})
  ...   config.tensorboard == any(pathlib.Path(name).rglob('events.out.tfevents.*'))
  True
  """
  with contextlib.ExitStack() as stack:
    wanted = [opened for name, opened in _WRITERS.items() if config.get(name) and processes.is_main()]
    writers = [stack.enter_context(opened(config, workdir)) for opened in wanted]

    def write(line: dict[str, Any]) -> None:
      numbers = {name: value for name, value in line.items() if isinstance(value, int | float) and name != 'step'}
      for writer in writers:
        writer(line['step'], numbers)

    if writers:
      for line in lines:
        write(line)
    yield write


@contextlib.contextmanager
def _tensorboard(config, workdir):
  del config
  package = importlib.import_module(_PACKAGES['tensorboard'])
  # Earlier events count as deleted and are written again, so that TensorBoard shows the same lines as metrics.jsonl
  # even after a run was killed.
  with package.SummaryWriter(str(workdir / 'tensorboard'), purge_step=0) as writer:

    def write(step, numbers):
      for name, value in numbers.items():
        writer.add_scalar(name, value, step)

    yield write


@contextlib.contextmanager
def _wandb(config, workdir):
  package = importlib.import_module(_PACKAGES['wandb'])
  identity = workdir / 'wandb_id'
  if not identity.exists() or not identity.read_text():
    replace_text(identity, secrets.token_hex(4))
  with package.init(
    project=os.environ.get('WANDB_PROJECT', 'vrl-jax'),
    name=workdir.name,
    id=identity.read_text(),
    resume='allow',
    dir=workdir,
    config=config.to_dict(),
  ) as run:
    first = run.step  # earlier lines of a resumed run have already been sent

    def write(step, numbers):
      if step >= first:
        run.log(numbers, step=step)

    yield write


_WRITERS = {'tensorboard': _tensorboard, 'wandb': _wandb}
