"""Joins the processes of a run with `jax.distributed`."""

import os
import socket
import time
from typing import NamedTuple

import jax

from vrl_jax import hosts
from vrl_jax.errors import UserError


class Cluster(NamedTuple):
  """What a process must know to find the others; the names are those of `jax.distributed.initialize`.

  Attributes:
    coordinator_address: HOST:PORT of process 0; None, as the next two, lets JAX find out (Cloud TPU, Slurm, …).
    num_processes: how many there are.
    process_id: which of them this is, from 0 on.
    heartbeat_timeout_seconds: a process that is silent for so long counts as dead, and the others end.
    initialization_timeout: seconds to wait at the start for the coordinator and for all processes.

  >>> Cluster('10.0.0.1:1234', num_processes=2, process_id=1).name
  'process 1 of 2'
  >>> try:
  ...   Cluster('10.0.0.1:1234', num_processes=2).check()
  ... except UserError as error:
  ...   print(str(error).partition(';')[0])
  --coordinator_address needs --process_id too
  """

  coordinator_address: str | None = None
  num_processes: int | None = None
  process_id: int | None = None
  heartbeat_timeout_seconds: int = 10
  initialization_timeout: int = 300

  @property
  def name(self) -> str:
    """What to call this process before JAX knows it."""
    return 'this process' if self.process_id is None else f'process {self.process_id} of {self.num_processes}'

  def check(self) -> None:
    """Raises UserError for what cannot be."""
    given = {name: value for name, value in self._asdict().items() if name in _WHO and value is not None}
    if given and len(given) < len(_WHO):
      missing = ', '.join(f'--{name}' for name in _WHO if name not in given)
      raise UserError(f'--{next(iter(given))} needs {missing} too; or give --distributed alone where JAX finds them')
    for name in ('heartbeat_timeout_seconds', 'initialization_timeout'):
      if getattr(self, name) < 1:
        raise UserError(f'--{name}={getattr(self, name)}, must be at least 1')
    if given:
      host, _, port = self.coordinator_address.rpartition(':')
      if not host or not port.isdigit() or not 0 < int(port) < 1 << 16:
        raise UserError(f'--coordinator_address={self.coordinator_address!r}, must be HOST:PORT')
      if not 0 <= self.process_id < self.num_processes:
        told = f'--process_id={self.process_id}, --num_processes={self.num_processes}'
        raise UserError(f'{told}: the processes are numbered from 0 to one less than their number')


_WHO = ('coordinator_address', 'num_processes', 'process_id')


def join(cluster: Cluster) -> None:
  """Waits for the other processes and joins them; JAX then has the devices of all. Before JAX starts its backend.

  Raises:
    UserError: the coordinator cannot be reached, not all processes came in time, or JAX finds no cluster.

  >>> try:
  ...   join(Cluster('127.0.0.1:1', num_processes=2, process_id=1, initialization_timeout=1))
  ... except UserError as error:
  ...   print(str(error).partition(' (')[0])
  process 1 of 2: the coordinator 127.0.0.1:1 cannot be reached after 1 s
  """
  jax.config.update('jax_enable_preemption_service', False)  # it would swallow SIGTERM
  deadline = time.monotonic() + cluster.initialization_timeout
  if cluster.process_id:
    _wait_for_coordinator(cluster, deadline)
  elif cluster.process_id == 0 and 'JAX_COORDINATOR_BIND_ADDRESS' not in os.environ:
    _check_port(cluster)
  try:
    jax.distributed.initialize(
      **cluster._asdict() | {'initialization_timeout': max(1, round(deadline - time.monotonic()))}
    )
  except Exception as error:  # JAX and its C++ runtime raise whatever they like
    words = (str(error).strip().splitlines() or [type(error).__name__])[0]
    raise UserError(trouble(cluster, words[:200])) from error


def _check_port(cluster):
  """JAX 0.12 crashes on a port that is taken."""
  port, both = int(cluster.coordinator_address.rpartition(':')[2]), socket.has_dualstack_ipv6()
  try:
    family = socket.AF_INET6 if both else socket.AF_INET
    socket.create_server(('', port), family=family, dualstack_ipv6=both).close()
  except OSError as error:
    raise UserError(
      f'{cluster.name}: cannot listen at {cluster.coordinator_address} ({error.strerror or error}): '
      'choose another port for all processes'
    ) from error


def _wait_for_coordinator(cluster, deadline):
  """So that nobody needs JAX's C++ to find out that there is none."""
  host, _, port = cluster.coordinator_address.rpartition(':')
  while True:
    try:
      socket.create_connection((host.strip('[]'), int(port)), timeout=max(1.0, deadline - time.monotonic())).close()
      return
    except OSError as error:
      if time.monotonic() > deadline:
        raise UserError(
          f'{cluster.name}: the coordinator {cluster.coordinator_address} cannot be reached after '
          f'{cluster.initialization_timeout} s ({error.strerror or error}): start process 0 there, '
          'check the address, or give a longer --initialization_timeout'
        ) from error
    time.sleep(0.2)


def trouble(cluster: Cluster, words: str) -> str:
  """What went wrong when JAX could not join, made of its own words.

  >>> cluster = Cluster('10.0.0.1:1234', num_processes=2, process_id=1)
  >>> trouble(cluster, 'UNAVAILABLE: no route to host')
  'process 1 of 2 at 10.0.0.1:1234: cannot join (UNAVAILABLE: no route to host)'
  """
  if cluster.num_processes is None:
    flags = ' '.join(f'--{name}' for name in _WHO)
    return f'--distributed: JAX cannot find or join a cluster ({words}): give {flags}'
  here = f'{cluster.name} at {cluster.coordinator_address}'
  if 'DEADLINE_EXCEEDED' in words:
    waited = f'{cluster.initialization_timeout} s'
    return f'{here}: not all processes came within {waited}: start all, or give a longer --initialization_timeout'
  if 'incarnation' in words:
    return f'{here}: another process has joined with the same --process_id: give each its own'
  return f'{here}: cannot join ({words})'


def finish() -> None:
  """The orderly end: all processes come here before any of them ends.

  >>> finish()  # nothing to wait for, alone
  """
  if hosts.count() > 1:
    hosts.wait_for_all()
    hosts.stop_listening()
    jax.distributed.shutdown()
