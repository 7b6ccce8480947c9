"""The cost tool: its table, bad arguments, and the copy of the table in the docs."""

import math
import pathlib

import pytest

from vrl_jax.tools import cost, period

PAGE = pathlib.Path(__file__).parents[2] / 'docs' / 'scaling.md'


def test_table_has_a_row_for_every_setting(capsys):
  assert cost.main(['--workers', '8', '64', '--parameters', '1e6', '1e9', '--steps', '1e6', '--latency', '0']) == 0
  head, titles, *rows, _, _, foot = capsys.readouterr().out.splitlines()
  assert 'T = 1,000,000' in head and titles.split()[:2] == ['N', 'P']
  assert [row.split()[:3] for row in rows] == [['8', '1', 'M'], ['8', '1', 'G'], ['64', '1', 'M'], ['64', '1', 'G']]
  # 8 workers, 1 G: T^½/N^1.5 = 44.2, T^¼/N^¾ = 6.6; step 6·1e9·4096/1e14; ring 2·7/8·4e9·8·1514/1448/1e10
  step, ring = 0.24576, 2 * 7 / 8 * 3.2 * 1514 / 1448
  shown = [f'{1 + ring / step:.2f}', f'k = 6: {1 + ring / step / 6:.2f}', f'k = 44: {1 + ring / step / 44:.2f}']
  for cell in (*shown, f'{1 + ring / step / 20:.2f}', f'{math.ceil(9 * ring / step)}'):
    assert cell in rows[1]
  assert 'N ≤ 39 for Local SGD, 62 for VRL-SGD' in foot


@pytest.mark.parametrize('main, flags', [(cost.main, []), (period.main, ['--steps=100'])])
@pytest.mark.parametrize('value', ['0', '-3', 'many', 'nan', '2.5'])
def test_bad_numbers_are_reported_in_one_line(main, flags, value, capsys):
  with pytest.raises(SystemExit) as exit:
    main([*flags, f'--workers={value}'])
  assert exit.value.code == 2
  assert f"'{value}', must be an integer of at least 1" in capsys.readouterr().err


def test_docs_scaling_shows_the_table(capsys):
  cost.main([])
  assert f'$ python -m vrl_jax.tools.cost\n{capsys.readouterr().out}```' in PAGE.read_text()
