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


def test_less_to_send_in_the_last_column(capsys):
  setting = ['--workers', '8', '--parameters', '1e9', '--latency', '0']
  assert cost.main([*setting, '--fragments', '4', '--delay', '1', '--bits', '8']) == 0
  _, titles, row, *_ = capsys.readouterr().out.splitlines()
  assert 'k = 20, F = 4, τ = 1, 8 bits' in titles
  # A byte and the 32 bits of 256 scales for each number; each of 4 transfers hides behind a step.
  step, ring = 0.24576, 2 * 7 / 8 * 1e9 * (8 + 32 / 256) / 1e10 * 1514 / 1448
  assert row.split()[-1] == f'{1 + 4 * (ring / 4 - step) / (20 * step):.2f}'
  assert cost.main([*setting, '--fragments', '4', '--delay', '9', '--bits', '4']) == 0
  assert capsys.readouterr().out.splitlines()[2].split()[-1] == '1.00'
  assert cost.main([*setting, '--bits', '16']) == 0
  ring = 2 * 7 / 8 * 1e9 * 16 / 1e10 * 1514 / 1448
  assert capsys.readouterr().out.splitlines()[2].split()[-1] == f'{1 + ring / (20 * step):.2f}'
  with pytest.raises(SystemExit):
    cost.main(['--delay', '-1'])
  assert "'-1', must be an integer of at least 0" in capsys.readouterr().err


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
