"""Several hosts on one machine: network namespaces joined by a switch, with links of limited bandwidth.

Each host is a namespace with one interface, connected to a bridge in another namespace. Outside of them only names
change: those of `ip netns`, and /etc/netns/HOST/hosts, which maps the machine's name to the host's address inside the
namespace (gloo listens on the address of the host's name). Everything is removed at the end, also after an exception or
a signal; leftovers of a killed run are removed by the next run.
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
_QUEUE = 4_000_000  # bytes; more than TCP ever has in flight here, so that no packet is dropped
_SEGMENT = 70_000  # the kernel passes TCP's data on in pieces of up to 64 kB plus headers


class Host(NamedTuple):
  """A namespace with an IP address."""

  name: str
  address: str

  def command(self, command: Sequence[str]) -> list[str]:
    """The command line that runs `command` on this host."""
    return ['ip', 'netns', 'exec', self.name, *command]

  def limit(self, bandwidth: float | None) -> None:
    """Limits the link to `bandwidth` bits per second (None: no limit), and resets `sent` to 0."""
    with contextlib.suppress(subprocess.CalledProcessError):  # a new host has no queueing discipline
      _call('tc', '-n', self.name, 'qdisc', 'delete', 'dev', _INTERFACE, 'root')
    _call('tc', '-n', self.name, 'qdisc', 'add', 'dev', _INTERFACE, 'root', *_queueing_discipline(bandwidth))

  def sent(self) -> int:
    """The bytes sent by the host's interface since `limit`, including the headers of Ethernet, IP and TCP.

    They are counted by the queueing discipline: the interface counts a large piece that the kernel has not yet divided
    into frames as one frame.
    """
    found = json.loads(_call('tc', '-n', self.name, '-s', '-j', 'qdisc', 'show', 'dev', _INTERFACE))
    return next(one['bytes'] for one in found if one.get('root'))

  def sent_to_itself(self) -> int:
    """The bytes sent over the loopback interface, between processes or devices of this host."""
    found = json.loads(_call('ip', '-n', self.name, '-s', '-j', 'link', 'show', 'dev', 'lo'))
    return found[0]['stats64']['tx']['bytes']

  def dropped(self) -> int:
    """The number of packets that did not fit into the queue."""
    found = json.loads(_call('tc', '-n', self.name, '-s', '-j', 'qdisc', 'show', 'dev', _INTERFACE))
    return sum(one['drops'] for one in found)


def why_unavailable() -> str | None:
  """Why namespaces cannot be created here, or None if they can."""
  missing = [program for program in ('ip', 'tc') if shutil.which(program) is None]
  if missing:
    return f'no program {" and ".join(missing)}: install iproute2'
  if os.geteuid():
    return 'network namespaces need root'
  try:
    with network(1) as (host,):
      host.limit(1e9)
      return None
  except (OSError, subprocess.CalledProcessError) as error:
    return f'network namespaces do not work here: {getattr(error, "stderr", None) or error}'.strip()


@contextlib.contextmanager
def network(count: int) -> Iterator[list[Host]]:
  """Creates hosts that can reach each other; at the end it removes them and kills everything that runs on them.

  Args:
    count: the number of hosts; their links are not limited until `Host.limit`.

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
  """Removes the namespaces of processes that have ended."""
  for name in names():
    pid = int(re.match(r'vrl(\d+)-', name)[1])
    if not pathlib.Path(f'/proc/{pid}').exists():
      _remove(name)


def names(pid: int | None = None) -> list[str]:
  """The existing namespaces that this module has created, in the process `pid` or in any."""
  pattern = rf'vrl{pid or "[0-9]+"}-'
  return [line.split()[0] for line in _call('ip', 'netns', 'list').splitlines() if re.match(pattern, line)]


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
  host.limit(None)


def _queueing_discipline(bandwidth):
  if bandwidth is None:
    return ['pfifo', 'limit', '10000']  # only counts
  # The burst after a pause should be small compared with a model. At 1 Gbit/s and more it must hold one of the kernel's
  # pieces, because dividing them takes more time than sending them.
  burst = _SEGMENT if bandwidth > 3e8 else max(12_000, round(bandwidth / 8 * 1.5e-3))
  return ['tbf', 'rate', f'{bandwidth:.0f}bit', 'burst', str(burst), 'limit', str(_QUEUE)]


def _remove(name):
  """Kills everything in a namespace and removes it; does nothing if it does not exist."""
  running = subprocess.run(['ip', 'netns', 'pids', name], capture_output=True, text=True)
  for pid in running.stdout.split():
    with contextlib.suppress(ProcessLookupError):
      os.kill(int(pid), signal.SIGKILL)
  subprocess.run(['ip', 'netns', 'delete', name], capture_output=True)
  shutil.rmtree(_ETC / name, ignore_errors=True)
  with contextlib.suppress(OSError):
    _ETC.rmdir()  # only if it is empty


def _call(*command):
  return subprocess.run(command, check=True, capture_output=True, text=True).stdout


@contextlib.contextmanager
def _signals_as_exceptions():
  """SIGTERM and SIGHUP raise an exception, as SIGINT does, so that the namespaces are removed."""

  def exit_process(number, frame):
    sys.exit(128 + number)

  before = {number: signal.signal(number, exit_process) for number in (signal.SIGTERM, signal.SIGHUP)}
  try:
    yield
  finally:
    for number, handler in before.items():
      signal.signal(number, handler)
