"""launch.py as a real process, and what to look at when it is over."""

import hashlib
import json
import os
import pathlib
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).parent.parent
CONFIG = ROOT / 'tests' / 'eight_quadratics.py'
CACHE = ROOT / '.pytest_cache' / 'vrl_jax'
_TIMES = ('seconds', 'examples_per_second')


def command(workdir, *flags, config=CONFIG):
  return [sys.executable, 'launch.py', f'--config={config}', f'--workdir={workdir}', *flags]


def start(workdir, *flags, config=CONFIG, **kwargs):
  """Starts launch.py; the caller waits for it or ends it."""
  environment = os.environ | {'VRL_JAX_CACHE': str(CACHE)}
  pipes = {'stdout': subprocess.PIPE, 'stderr': subprocess.PIPE, 'text': True, 'cwd': ROOT, 'env': environment}
  return subprocess.Popen(command(workdir, *flags, config=config), **(pipes | kwargs))


def launch(workdir, *flags, **kwargs):
  """Runs launch.py to its end: (status, stdout, stderr)."""
  process = start(workdir, *flags, **kwargs)
  out, err = process.communicate(timeout=120)
  return process.returncode, out, err


def wait_until(condition, process=None, seconds=60):
  """Waits for something that a process is going to do."""
  deadline = time.monotonic() + seconds
  while not condition():
    assert time.monotonic() < deadline, 'it took too long'
    assert process is None or process.poll() is None, process.communicate()
    time.sleep(0.002)


def lines(workdir):
  """metrics.jsonl without the times."""
  rows = [json.loads(line) for line in (pathlib.Path(workdir) / 'metrics.jsonl').read_text().splitlines()]
  return [{key: value for key, value in row.items() if key not in _TIMES} for row in rows]


def summary(workdir):
  return json.loads((pathlib.Path(workdir) / 'summary.json').read_text())


def checkpoint_steps(workdir):
  folder = pathlib.Path(workdir) / 'checkpoints'
  return sorted(int(path.name) for path in folder.glob('*') if path.name.isdigit())


def leaves(workdir, step):
  """Name, type, shape and checksum of every array of a checkpoint's state."""
  about = json.loads((pathlib.Path(workdir) / 'checkpoints' / str(step) / 'about' / 'metadata').read_text())
  return about['leaves']


def contents(folder):
  """The hash of every file, to see whether anything changed."""
  return {
    str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else None
    for path in sorted(pathlib.Path(folder).rglob('*'))
  }


def one_line(err):
  """stderr, which must be one line and no traceback."""
  assert err.count('\n') == 1, err
  assert 'Traceback' not in err, err
  return err.strip()
