"""The period tool."""

import pytest

from vrl_jax.tools import period


def test_table_and_corollary(capsys):
  assert period.main('--steps 117187 --workers 8 --smoothness 10 --noise 30'.split()) == 0
  out = capsys.readouterr().out
  assert 'Local SGD          15.1       7,813         3.9      39,063' in out
  assert 'no bound is known for EASGD' in out
  assert 'k ≤ σT^½/(√72·L·N^1.5) = 5.349' in out and 'γ is within' in out
  for bad in ('--steps 0 --workers 8', '--steps 10', '--steps 10 --workers 2 --noise -1'):
    with pytest.raises(SystemExit, match='2'):
      period.main(bad.split())
