"""launch.py as a real process, and readers of the files that it writes."""

import hashlib
import json
import os
import pathlib
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).parents[2]
CONFIG = ROOT / 'tests' / 'support' / 'eight_quadratics.py'
# One for each process of pytest-xdist: JAX does not write the files of its compilation cache atomically.
CACHE = ROOT / '.pytest_cache' / 'vrl_jax' / os.environ.get('PYTEST_XDIST_WORKER', 'main')
TIMEOUT = 300  # seconds, for anything that takes a few on an idle machine
_TIMES = ('seconds', 'examples_per_second')


def command(workdir, *flags, config=CONFIG, program=('launch.py',)):
  return [sys.executable, *program, f'--config={config}', f'--workdir={workdir}', *flags]


def start(workdir, *flags, config=CONFIG, program=('launch.py',), **kwargs):
  """Starts launch.py; the caller must wait for it or kill it."""
  environment = os.environ | {'VRL_JAX_CACHE': str(CACHE)}
  pipes = {'stdout': subprocess.PIPE, 'stderr': subprocess.PIPE, 'text': True, 'cwd': ROOT, 'env': environment}
  return subprocess.Popen(command(workdir, *flags, config=config, program=program), **(pipes | kwargs))


def launch(workdir, *flags, **kwargs):
  """Runs launch.py; returns (status, stdout, stderr)."""
  process = start(workdir, *flags, **kwargs)
  out, err = process.communicate(timeout=TIMEOUT)
  return process.returncode, out, err


def wait_until(condition, process=None, seconds=TIMEOUT):
  """Waits until `condition()` is true; fails if the process ends before."""
  deadline = time.monotonic() + seconds
  while not condition():
    assert time.monotonic() < deadline, 'timeout'
    assert process is None or process.poll() is None, process.communicate()
    time.sleep(0.002)


def lines(workdir):
  """The lines of metrics.jsonl without the times."""
  rows = [json.loads(line) for line in (pathlib.Path(workdir) / 'metrics.jsonl').read_text().splitlines()]
  return [{key: value for key, value in row.items() if key not in _TIMES} for row in rows]


def summary(workdir):
  return json.loads((pathlib.Path(workdir) / 'summary.json').read_text())


def checkpoint_steps(workdir):
  folder = pathlib.Path(workdir) / 'checkpoints'
  return sorted(int(path.name) for path in folder.glob('*') if path.name.isdigit())


def leaves(workdir, step):
  """Name, type, shape and checksum of every array of a checkpoint."""
  metadata = json.loads((pathlib.Path(workdir) / 'checkpoints' / str(step) / 'about' / 'metadata').read_text())
  return metadata['leaves']


def assert_same_run(workdir, reference):
  """The log lines and the last checkpoint of two runs must be the same, bit for bit."""
  assert lines(workdir) == lines(reference)
  last = checkpoint_steps(reference)[-1]
  assert leaves(workdir, last) == leaves(reference, last)


def contents(folder):
  """The hash of every file, to compare directories; without the bytecode of config files."""
  return {
    str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else None
    for path in sorted(pathlib.Path(folder).rglob('*'))
    if '__pycache__' not in path.parts
  }


def one_line(err):
  """Returns stderr, which must be a single line and no traceback."""
  assert err.count('\n') == 1, err
  assert 'Traceback' not in err, err
  return err.strip()
