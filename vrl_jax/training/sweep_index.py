"""sweep.json: the runs of a sweep, and the sub-directory of each."""

import json
import pathlib
import re
from collections.abc import Mapping, Sequence
from typing import Any

from vrl_jax.errors import UserError
from vrl_jax.system.storage import replace_text
from vrl_jax.training.run_directory import read_json

_FILE = 'sweep.json'


def folder_name(name: str) -> str:
  """The sub-directory of a run: its name without spaces and commas, so that no shell needs quotes.

  >>> folder_name('Local SGD, k=5, seed=0')
  'Local-SGD_k=5_seed=0'
  """
  return re.sub(r' +', '-', re.sub(r' *,[ ,]*', '_', name.strip(' ,')))


def run_folders(names: Sequence[str], directory: pathlib.Path) -> dict[str, str]:
  """The sub-directory of every run of a sweep, by name.

  A run that an earlier version began in a directory with the run's own name stays there.

  >>> run_folders(['S-SGD', 'Local SGD'], pathlib.Path('runs/new'))
  {'S-SGD': 'S-SGD', 'Local SGD': 'Local-SGD'}
  >>> run_folders(['k=5, b=1', 'k=5_b=1'], pathlib.Path('runs/new'))
  Traceback (most recent call last):
    ...
  vrl_jax.errors.UserError: sweep: the names 'k=5, b=1' and 'k=5_b=1' would share the directory k=5_b=1; change one
  """
  owners: dict[str, str] = {}
  for name in names:
    folder = folder_name(name)
    other = owners.setdefault(folder.casefold(), name)  # some file systems ignore the case
    if other != name:
      raise UserError(f'sweep: the names {other!r} and {name!r} would share the directory {folder}; change one')
  return {name: name if (directory / name / 'config.json').exists() else folder_name(name) for name in names}


def check_keeps_runs(names: Sequence[str], directory: pathlib.Path) -> None:
  """Raises UserError if the directory holds a run of a sweep that is not among `names`: the report would lose it.

  >>> import tempfile
  >>> with tempfile.TemporaryDirectory() as name:
  ...   directory = pathlib.Path(name)
  ...   (directory / 'k=5').mkdir()
  ...   replace_text(directory / 'k=5' / 'config.json', '{}')
  ...   write_index([{'name': 'k=5'}, {'name': 'k=7'}], run_folders(['k=5', 'k=7'], directory), directory)
  ...   check_keeps_runs(['k=5', 'k=10'], directory)  # k=7 has not begun
  ...   try:
  ...     check_keeps_runs(['k=10'], directory)
  ...   except UserError as error:
  ...     print(str(error).removeprefix(name))
  : holds runs that this sweep does not have: 'k=5'; add them to the sweep, move their directories away, or choose another --workdir
  """
  path = directory / _FILE
  listed = (read_json(path) or {}).get('runs', [])
  if not isinstance(listed, list) or not all(isinstance(e, dict) and isinstance(e.get('name'), str) for e in listed):
    raise UserError(f'{path}: "runs" is not a list of named runs; move it away or choose another --workdir')
  began = lambda entry: (directory / str(entry.get('folder', entry['name'])) / 'config.json').exists()
  lost = [repr(entry['name']) for entry in listed if entry['name'] not in names and began(entry)]
  if lost:
    shown = ', '.join(lost[:5]) + (f' and {len(lost) - 5} more' if len(lost) > 5 else '')
    raise UserError(
      f'{directory}: holds runs that this sweep does not have: {shown}; '
      'add them to the sweep, move their directories away, or choose another --workdir'
    )


def write_index(
  entries: Sequence[Mapping[str, Any]], folders: Mapping[str, str], directory: pathlib.Path, **facts: Any
) -> None:
  """Writes sweep.json.

  Args:
    entries: `vrl_jax.training.sweep.sweep_entries` of the config.
    folders: the sub-directory of each run, by name.
    directory: the directory of the sweep.
    facts: more fields, such as the title.

  >>> import tempfile
  >>> with tempfile.TemporaryDirectory() as name:
  ...   write_index([{'name': 'k=5', 'period': 5}], {'k=5': 'k=5'}, pathlib.Path(name), title='demo')
  ...   read_json(pathlib.Path(name, 'sweep.json'))
  {'title': 'demo', 'runs': [{'name': 'k=5', 'folder': 'k=5', 'overrides': {'period': 5}}]}
  """
  runs = [
    {
      'name': entry['name'],
      'folder': folders[entry['name']],
      'overrides': {k: v for k, v in entry.items() if k != 'name'},
    }
    for entry in entries
  ]
  replace_text(directory / _FILE, json.dumps({**facts, 'runs': runs}, indent=2) + '\n')
