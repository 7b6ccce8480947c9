"""Hosts with addresses of their own on one machine: network namespaces joined by a switch, with links as slow as asked.

Each host is a namespace with one interface, whose other end hangs on a bridge in one more namespace, so that nothing
outside of them changes but two kinds of names: `ip netns`'s own, and /etc/netns/HOST/hosts, with which a program in the
namespace finds the host's address under the machine's name (gloo listens on the address of the host's name). All of it
is removed at the end, after an exception or a signal too; what a SIGKILL leaves behind goes with the next `network`.
"""

import contextlib
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from typing import NamedTuple

_ETC = pathlib.Path('/etc/netns')
_INTERFACE = 'eth0'
_QUEUE = 4_000_000  # bytes that wait for a slow link; more than TCP ever has under way here, so that none is dropped
_SEGMENT = 70_000  # the kernel hands TCP's data over in pieces of up to 64 kB and their headers


class Host(NamedTuple):
  """A namespace with an address."""

  name: str
  address: str

  def command(self, command: Sequence[str]) -> list[str]:
    """The command line that runs `command` on this host."""
    return ['ip', 'netns', 'exec', self.name, *command]

  def shape(self, bandwidth: float | None) -> None:
    """Makes the host's link so many bits a second wide, None: as wide as the machine copies; `sent` begins at 0 again."""
    with contextlib.suppress(subprocess.CalledProcessError):  # the first time there is none
      _call('tc', '-n', self.name, 'qdisc', 'delete', 'dev', _INTERFACE, 'root')
    _call('tc', '-n', self.name, 'qdisc', 'add', 'dev', _INTERFACE, 'root', *_shaped(bandwidth))

  def sent(self) -> int:
    """The bytes that have left by the host's interface since `shape`, headers of Ethernet, IP and TCP included.

    They are the queueing discipline's: the interface itself counts a large piece that the kernel has not yet cut into
    frames as one frame.
    """
    found = json.loads(_call('tc', '-n', self.name, '-s', '-j', 'qdisc', 'show', 'dev', _INTERFACE))
    return next(one['bytes'] for one in found if one.get('root'))

  def sent_to_itself(self) -> int:
    """The bytes between processes or devices of this host, over its loopback interface."""
    found = json.loads(_call('ip', '-n', self.name, '-s', '-j', 'link', 'show', 'dev', 'lo'))
    return found[0]['stats64']['tx']['bytes']

  def dropped(self) -> int:
    """The packets that did not fit into the queue."""
    found = json.loads(_call('tc', '-n', self.name, '-s', '-j', 'qdisc', 'show', 'dev', _INTERFACE))
    return sum(one['drops'] for one in found)


def why_not() -> str | None:
  """Why namespaces cannot be made here, or None if they can."""
  missing = [program for program in ('ip', 'tc') if shutil.which(program) is None]
  if missing:
    return f'no program {" and ".join(missing)}: install iproute2'
  if os.geteuid():
    return 'not root, and only root may make network namespaces'
  try:
    with network(1) as (host,):
      host.shape(1e9)
      return None
  except (OSError, subprocess.CalledProcessError) as error:
    return f'network namespaces do not work here: {getattr(error, "stderr", None) or error}'.strip()


@contextlib.contextmanager
def network(count: int) -> Iterator[list[Host]]:
  """Makes hosts that reach each other, and removes them with everything that still runs on them.

  Args:
    count: how many; their links are as fast as the machine copies until `Host.shape`.

  Yields:
    The hosts.
  """
  remove_leftovers()
  stem = f'vrl{os.getpid()}'
  hosts = [Host(f'{stem}-{i}', f'10.77.0.{i + 1}') for i in range(count)]
  switch = f'{stem}-switch'
  with _signals_as_exceptions():
    try:
      _call('ip', 'netns', 'add', switch)
      _call('ip', '-n', switch, 'link', 'add', 'name', 'bridge0', 'type', 'bridge')
      _call('ip', '-n', switch, 'link', 'set', 'dev', 'bridge0', 'up')
      for i, host in enumerate(hosts):
        _add(host, switch, f'port{i}')
      yield hosts
    finally:
      for name in [*(host.name for host in hosts), switch]:
        _remove(name)


def remove_leftovers() -> None:
  """Removes the namespaces of processes that are no more."""
  for name in names():
    pid = int(re.match(r'vrl(\d+)-', name)[1])
    if not pathlib.Path(f'/proc/{pid}').exists():
      _remove(name)


def names(pid: int | None = None) -> list[str]:
  """The namespaces that this module has made, in this process or any, and that are still there."""
  mine = rf'vrl{pid or "[0-9]+"}-'
  return [line.split()[0] for line in _call('ip', 'netns', 'list').splitlines() if re.match(mine, line)]


def _add(host, switch, port):
  _call('ip', 'netns', 'add', host.name)
  (_ETC / host.name).mkdir(parents=True)
  known = f'127.0.0.1 localhost\n{host.address} {socket.gethostname()}\n'
  (_ETC / host.name / 'hosts').write_text(known)
  ends = ['name', _INTERFACE, 'netns', host.name, 'type', 'veth', 'peer', 'name', port, 'netns', switch]
  _call('ip', 'link', 'add', *ends)
  _call('ip', '-n', switch, 'link', 'set', 'dev', port, 'master', 'bridge0', 'up')
  _call('ip', '-n', host.name, 'addr', 'add', f'{host.address}/24', 'dev', _INTERFACE)
  for interface in ('lo', _INTERFACE):
    _call('ip', '-n', host.name, 'link', 'set', 'dev', interface, 'up')
  host.shape(None)


def _shaped(bandwidth):
  if bandwidth is None:
    return ['pfifo', 'limit', '10000']  # it only counts
  # What may go out at once after a pause, which should be little beside a model; 1 Gbit/s and more must not have to cut
  # the kernel's pieces, which takes more time than sending them.
  burst = _SEGMENT if bandwidth > 3e8 else max(12_000, round(bandwidth / 8 * 1.5e-3))
  return ['tbf', 'rate', f'{bandwidth:.0f}bit', 'burst', str(burst), 'limit', str(_QUEUE)]


def _remove(name):
  """Ends what runs in a namespace, and removes it; nothing happens if there is none."""
  running = subprocess.run(['ip', 'netns', 'pids', name], capture_output=True, text=True)
  for pid in running.stdout.split():
    with contextlib.suppress(ProcessLookupError):
      os.kill(int(pid), signal.SIGKILL)
  subprocess.run(['ip', 'netns', 'delete', name], capture_output=True)
  shutil.rmtree(_ETC / name, ignore_errors=True)
  with contextlib.suppress(OSError):
    _ETC.rmdir()  # if it is empty


def _call(*command):
  return subprocess.run(command, check=True, capture_output=True, text=True).stdout


@contextlib.contextmanager
def _signals_as_exceptions():
  """SIGTERM and SIGHUP end the process by an exception, as SIGINT does, so that what was made is removed."""

  def leave(number, frame):
    sys.exit(128 + number)

  before = {number: signal.signal(number, leave) for number in (signal.SIGTERM, signal.SIGHUP)}
  try:
    yield
  finally:
    for number, handler in before.items():
      signal.signal(number, handler)
