"""Names of topologies, and what is said if there is no such topology or no compiler."""

import importlib.util
import re

import pytest

from vrl_jax.accounting import topologies
from vrl_jax.errors import UserError


@pytest.mark.parametrize(
  'name', ['', 'v5e', 'v5e:', 'v5e:8', '8', 'v5e:2x4*0', 'v5e:2x4*', 'h200:8', 'h100', 'h100:0', 'h100:-1', 'cpu:2']
)
def test_names_that_stand_for_nothing(name):
  message = f'topology={name!r}, must be a TPU slice such as v5e:2x4, slices such as v5e:2x4*2, or GPUs such as h100:8'
  with pytest.raises(UserError, match=re.escape(message)):
    topologies.find_topology(name)


def test_gpus_of_several_hosts_are_whole_hosts():
  with pytest.raises(UserError, match="topology='h100:12': more than 8 GPUs must be whole hosts of 8"):
    topologies.find_topology('h100:12')


@pytest.mark.parametrize(
  ('name', 'command'),
  [('v5e:2x4', r"pip install 'jax\[tpu\]=="), ('h100:8', 'pip install --no-deps jax-cuda12-plugin==')],
)
def test_an_absent_compiler_is_named_with_the_command_that_installs_it(name, command, monkeypatch):
  monkeypatch.setattr(importlib.util, 'find_spec', lambda package: None)
  with pytest.raises(UserError, match=f"topology='{name}': its compiler is not installed: {command}") as raised:
    topologies.find_topology(name)
  assert '\n' not in str(raised.value)


def test_what_the_compiler_refuses_is_one_line(monkeypatch):
  monkeypatch.setattr(importlib.util, 'find_spec', lambda package: package)

  def refuse(**kwargs):
    raise ValueError(f'no {kwargs["topology_name"]}\nand a trace')

  monkeypatch.setattr(topologies.topologies, 'get_topology_desc', refuse)
  with pytest.raises(UserError, match="^topology='v5e:3x7': no v5e:3x7(; start .*JAX_PLATFORMS=cpu.*)?$"):
    topologies.find_topology('v5e:3x7')


@pytest.mark.parametrize(
  ('name', 'layout'), [('h100:1', '1x1x1'), ('h100:8', '1x1x8'), ('a100:4', '1x1x4'), ('h100:16', '1x2x8')]
)
def test_the_layout_and_the_kind_of_gpus(name, layout, monkeypatch):
  monkeypatch.setattr(importlib.util, 'find_spec', lambda package: package)
  asked = {}
  monkeypatch.setattr(topologies, '_devices', lambda name, **kwargs: asked.update(kwargs) or ('device',))
  topology = topologies.find_topology(name)
  assert asked['topology'] == layout
  assert f'major: {9 if name.startswith("h") else 8} ' in asked['target_config']
  assert topology.memory == 80 << 30


def test_slices(monkeypatch):
  monkeypatch.setattr(importlib.util, 'find_spec', lambda package: package)
  asked = {}

  class Device:
    device_kind = 'TPU v5 lite'

  monkeypatch.setattr(topologies, '_devices', lambda name, **kwargs: asked.update(kwargs) or (Device,))
  assert topologies.find_topology('v5e:2x4*2').memory == 16 << 30
  assert asked == {'platform': 'tpu', 'topology_name': 'v5e:2x4', 'num_slices': 2}
