"""Joins the processes of a run with `jax.distributed`."""

import os
import socket
import time
from typing import NamedTuple

import jax

from vrl_jax.cluster import processes
from vrl_jax.errors import UserError


class Cluster(NamedTuple):
  """How a process finds the others: arguments of `jax.distributed.initialize`, and their flags on the command line.

  Attributes:
    coordinator_address: HOST:PORT of process 0; None, like the next two, where JAX finds it (Cloud TPU, Slurm, …).
    num_processes: the number of processes.
    process_id: the index of this process, from 0.
    heartbeat_timeout_seconds: a process that is silent for this long counts as dead, and the others end.
    initialization_timeout: seconds to wait at the start for the coordinator and for all processes.

  >>> Cluster('10.0.0.1:1234', num_processes=2, process_id=1).name
  'process 1 of 2'
  >>> try:
  ...   Cluster('10.0.0.1:1234', num_processes=2).check()
  ... except UserError as error:
  ...   print(str(error).partition(';')[0])
  --coordinator_address also needs --process_id
  """

  coordinator_address: str | None = None
  num_processes: int | None = None
  process_id: int | None = None
  heartbeat_timeout_seconds: int = 10
  initialization_timeout: int = 300

  @property
  def name(self) -> str:
    """The name of this process in messages, before JAX knows it."""
    return 'this process' if self.process_id is None else f'process {self.process_id} of {self.num_processes}'

  def check(self) -> None:
    """Raises UserError for values that are incomplete or out of range."""
    address, number, process = self.coordinator_address, self.num_processes, self.process_id
    for name in ('heartbeat_timeout_seconds', 'initialization_timeout'):
      if getattr(self, name) < 1:
        raise UserError(f'--{name}={getattr(self, name)}, must be at least 1')
    if address is None or number is None or process is None:
      given = [name for name in _IDENTITY if getattr(self, name) is not None]
      if given:
        missing = ', '.join(f'--{name}' for name in _IDENTITY if name not in given)
        raise UserError(f'--{given[0]} also needs {missing}; or give --distributed alone where JAX finds them')
      return
    host, _, port = address.rpartition(':')
    if not host or not port.isdigit() or not 0 < int(port) < 1 << 16:
      raise UserError(f'--coordinator_address={address!r}, must be HOST:PORT')
    if not 0 <= process < number:
      raise UserError(f'--process_id={process}, must be in [0, num_processes={number})')


_IDENTITY = ('coordinator_address', 'num_processes', 'process_id')


def join(cluster: Cluster) -> None:
  """Waits for the other processes and joins them, so that JAX has the devices of all. Call it before JAX's backend starts.

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
  if cluster.coordinator_address is not None:
    if cluster.process_id:
      _wait_for_coordinator(cluster, cluster.coordinator_address, deadline)
    elif 'JAX_COORDINATOR_BIND_ADDRESS' not in os.environ:
      _check_port(cluster, cluster.coordinator_address)
  try:
    jax.distributed.initialize(
      coordinator_address=cluster.coordinator_address,
      num_processes=cluster.num_processes,
      process_id=cluster.process_id,
      heartbeat_timeout_seconds=cluster.heartbeat_timeout_seconds,
      initialization_timeout=max(1, round(deadline - time.monotonic())),
    )
  except Exception as error:  # JAX and its C++ runtime raise errors of many types
    reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
    raise UserError(join_error(cluster, reason[:200])) from error


def _check_port(cluster, address):
  """JAX 0.12 crashes if the port is taken."""
  port, both = int(address.rpartition(':')[2]), socket.has_dualstack_ipv6()
  try:
    family = socket.AF_INET6 if both else socket.AF_INET
    socket.create_server(('', port), family=family, dualstack_ipv6=both).close()
  except OSError as error:
    raise UserError(
      f'{cluster.name}: cannot listen at {address} ({error.strerror or error}): choose another port for all processes'
    ) from error


def _wait_for_coordinator(cluster, address, deadline):
  """JAX's C++ client would end the process with a stack trace if there is no coordinator."""
  host, _, port = address.rpartition(':')
  while True:
    try:
      socket.create_connection((host.strip('[]'), int(port)), timeout=max(1.0, deadline - time.monotonic())).close()
      return
    except OSError as error:
      if time.monotonic() > deadline:
        raise UserError(
          f'{cluster.name}: the coordinator {address} cannot be reached after {cluster.initialization_timeout} s '
          f'({error.strerror or error}): start process 0 there, check the address, or increase --initialization_timeout'
        ) from error
    time.sleep(0.2)


def join_error(cluster: Cluster, reason: str) -> str:
  """The message of a failure to join.

  Args:
    cluster: what `join` was called with.
    reason: the first line of JAX's error.

  >>> cluster = Cluster('10.0.0.1:1234', num_processes=2, process_id=1)
  >>> join_error(cluster, 'UNAVAILABLE: no route to host')
  'process 1 of 2 at 10.0.0.1:1234: cannot join (UNAVAILABLE: no route to host)'
  """
  if cluster.num_processes is None:
    flags = ' '.join(f'--{name}' for name in _IDENTITY)
    return f'--distributed: JAX cannot find or join a cluster ({reason}): give {flags}'
  where = f'{cluster.name} at {cluster.coordinator_address}'
  if 'DEADLINE_EXCEEDED' in reason:
    return (
      f'{where}: not all processes joined within {cluster.initialization_timeout} s: start all of them, '
      'or increase --initialization_timeout'
    )
  if 'incarnation' in reason:
    return f'{where}: another process has joined with the same --process_id: give each process a different one'
  return f'{where}: cannot join ({reason})'


def finish(listener: processes.Listener | None = None) -> None:
  """Ends the run in order: waits for all processes, then disconnects them. All processes must call it.

  Args:
    listener: the result of `processes.listen`, if it was called.

  >>> finish()  # returns at once in a single process
  """
  if processes.count() > 1:
    processes.wait_for_all()
    if listener is not None:
      listener.stop()
    jax.distributed.shutdown()
