"""RESULTS.md agrees with the stored summaries, and the summaries with the commands in it."""

import json
import math
import re
import shutil

import numpy as np
import pytest

from benchmarks.network import RESULTS
from results import DOCUMENT, FIGURES, SUMMARIES, TEMPLATE, __main__
from results.builder import document, figures, published, sending, summaries
from vrl_jax import report
from vrl_jax.cli import launch
from vrl_jax.errors import DataError, UserError
from vrl_jax.report.records import Run, Sweep

NAMES = sorted(path.stem for path in SUMMARIES.glob('*.jsonl'))


def read(name):
  return summaries.read(SUMMARIES / f'{name}.jsonl')


def finals(name, metric):
  """{(run, seed): final value}, read from the file without the code under test."""
  head, *runs = [json.loads(line) for line in (SUMMARIES / f'{name}.jsonl').read_text().splitlines()]
  seed = lambda run: run['config'].get('seed', head['config'].get('seed'))
  return {(run['name'].split(', seed')[0], seed(run)): run['metrics'][metric][-1] for run in runs}


def test_the_document_is_up_to_date():
  assert DOCUMENT.read_text() == document.fill(TEMPLATE.read_text()), 'run `make results`'


@pytest.mark.parametrize('name', NAMES)
def test_a_changed_summary_is_noticed(name, tmp_path):
  """The text and the checksums of the figures no longer agree with it."""
  shutil.copytree(SUMMARIES, tmp_path / 'summaries')
  path = tmp_path / 'summaries' / f'{name}.jsonl'
  head, first, *rest = path.read_text().splitlines()
  run = json.loads(first)
  metric = 'train_loss' if 'train_loss' in run['metrics'] else 'distance_to_optimum'
  run['metrics'][metric] = [1.02 * value for value in run['metrics'][metric]]
  path.write_text('\n'.join([head, json.dumps(run), *rest]) + '\n')
  template = TEMPLATE.read_text()
  lines = '\n'.join(line for line in template.split('\n') if f' {name}' in line)
  in_text = document.fill(lines, tmp_path / 'summaries') != document.fill(lines)
  shown = [figure for summary, figure in document.figure_names(template) if summary == name]
  files = [(FIGURES / figures.file_name(read(name), figure), figure) for figure in shown]
  changed = summaries.read(path)
  in_figure = [figures.stored_checksum(file) != figures.checksum(changed, figure) for file, figure in files]
  assert all(in_figure)
  # A grid of many runs has a figure but no table, so the changed number need not be in the text.
  assert in_text or (in_figure and f'{{{{table {name}}}}}' not in template)


def test_the_template_has_no_decimal_numbers():
  text = re.sub(r'```.*?```|\{\{.*?\}\}|`.*?`|arXiv:[\d.]+', '', TEMPLATE.read_text(), flags=re.S)
  assert re.findall(r'.{0,30}\d[.,]\d.{0,10}', text) == []


@pytest.mark.parametrize('name', NAMES)
def test_the_commands_yield_the_stored_configs(name):
  summary = read(name)
  summaries.check_arguments(summary.arguments, summary.sweep)
  assert all(run.status in ('finished', 'diverged') for run in summary.sweep.runs)


def test_numbers_of_examples():
  of_task = {
    'lenet_mnist': {'mnist': 60_000, 'mnist_5k': 4_000},
    'textcnn_dbpedia': 77_854,
    'mlp_tiny_imagenet': 10_000,
  }
  for summary in map(read, NAMES):
    config = summary.sweep.runs[0].config
    expected = of_task.get(config['task'], 2)  # the quadratic task has one example for each of two workers
    assert summary.examples == (expected[config['dataset']] if isinstance(expected, dict) else expected)


def test_table_values():
  """Computed from the stored values without the code under test."""
  by_run, counts = finals('lenet_mnist', 'train_loss'), finals('lenet_mnist', 'communications')
  for name in ('S-SGD', 'VRL-SGD', 'Local SGD', 'EASGD'):
    losses = [loss for (run, _), loss in by_run.items() if run == name]
    row = next(line for line in DOCUMENT.read_text().splitlines() if line.startswith(f'| {name} |'))
    cells = [cell.strip(' *') for cell in row.split('|')[1:-1]]
    assert cells[1].startswith(f'{np.mean(losses):.5f} ±') and len(losses) == 2
    ratio = np.mean([loss / by_run['S-SGD', seed] for (run, seed), loss in by_run.items() if run == name])
    assert cells[3].startswith(f'{ratio:.2f}')
    assert cells[4] == f'{counts[name, 0]:,}'


def test_vrl_sgd_matches_s_sgd_and_the_others_do_not():
  losses, sent = finals('lenet_mnist', 'train_loss'), finals('lenet_mnist', 'communications')
  for seed in (0, 1):
    base = losses['S-SGD', seed]
    assert losses['VRL-SGD', seed] <= 1.10 * base and losses['VRL-SGD-W', seed] <= 1.10 * base
    assert min(losses['Local SGD', seed], losses['EASGD', seed]) > 1.4 * base
    assert sent['S-SGD', seed] == 20 * sent['VRL-SGD', seed] == 7020
  assert read('lenet_mnist').sweep.runs[0].config['epochs'] >= 30


def test_vrl_sgd_in_4_bits_and_4_fragments_reaches_its_own_loss_with_a_seventh_of_the_bytes():
  name, less = 'less_to_send_four_bits', 'VRL-SGD, 4 bits, 4 fragments'
  losses, sent = finals(name, 'train_loss'), finals(name, 'bytes_communicated')
  assert {seed for _, seed in losses} == {0, 1}
  for seed in (0, 1):
    assert losses[less, seed] <= 1.05 * losses['VRL-SGD', seed]
    assert sent[less, seed] <= sent['VRL-SGD', seed] / 7
  assert read(name).sweep.runs[0].config['epochs'] == 30


def test_modelled_seconds_over_a_slow_link():
  """LeNet has 61,706 parameters, and two hosts reduce them in the time of one model on the link."""
  (unlimited,) = [
    point
    for point in json.loads(RESULTS.read_text())['points']
    if (point['task'], point['algorithm'], point['bandwidth']) == ('lenet', 'vrl_sgd', None) and 'loss' in point
  ]
  short, long = unlimited['short'], unlimited['long']
  step = (long['seconds'] - short['seconds']) / (long['timed_steps'] - short['timed_steps'])
  summary, model = read('less_to_send'), 4 * 61_706 * 8 / 1e7 * 1514 / 1448
  seconds = {run.name: run.final(sending.SECONDS) for run in sending.over_slow_link(summary).runs}
  steps = summary.sweep.runs[0].final('step')
  assert seconds['VRL-SGD'] == pytest.approx(steps * (step + model / 20))
  # Each of four transfers takes a quarter of it, behind five steps; 4 bits and 1/64 for the scales, of four workers: 5/2.
  hidden = lambda size: steps * (step + 4 * max(0, size * model / 4 - 5 * step) / 20)
  assert seconds['VRL-SGD, 4 fragments, 5 steps of delay'] == pytest.approx(hidden(1.0))
  assert seconds['VRL-SGD, all, 4 bits'] == pytest.approx(hidden(2.5 * (4 + 32 / 256) / 32))


def test_the_figures_are_up_to_date():
  shown = document.figure_names(TEMPLATE.read_text())
  files = {figures.file_name(read(name), figure): (name, figure) for name, figure in shown}
  assert {path.name for path in FIGURES.iterdir()} == set(files)
  for file, (name, figure) in files.items():
    assert figures.stored_checksum(FIGURES / file) == figures.checksum(read(name), figure), (
      f'{file}: run `make results`'
    )
    assert (FIGURES / file).stat().st_size < 150_000
  assert sum(path.stat().st_size for path in SUMMARIES.iterdir()) < 1_500_000


ARGUMENTS = [
  '--config=tests/support/eight_quadratics.py',
  '--config.steps=12',
  '--config.seeds=(0,1)',
  '--config.log_every_step',
]


def test_store_and_read_a_sweep(tmp_path, monkeypatch, capsys):
  monkeypatch.setattr(__main__, 'SUMMARIES', tmp_path)
  assert launch.main(['launch.py', *ARGUMENTS, f'--workdir={tmp_path}/sweep']) == 0
  assert __main__.main(['store', 'small', f'{tmp_path}/sweep', '--', *ARGUMENTS]) == 0
  stored, folder = summaries.read(tmp_path / 'small.jsonl'), report.read_sweep(tmp_path / 'sweep')
  assert stored.arguments == tuple(ARGUMENTS)
  assert report.comparison_table(stored.sweep) == report.comparison_table(folder)
  for run, original in zip(stored.sweep.runs, folder.runs, strict=True):
    np.testing.assert_allclose(run.column('distance_to_optimum'), original.column('distance_to_optimum'), rtol=1e-4)
    assert len(run.metrics) == 13
  assert 'data_dir' not in stored.sweep.runs[0].config  # it depends on the machine

  capsys.readouterr()
  assert __main__.main(['store', 'other', f'{tmp_path}/sweep', '--', *ARGUMENTS, '--config.period=3']) == 2
  assert re.fullmatch(r'error: .*seed=0: period=\d+ in the stored run, but 3 with .*\n', capsys.readouterr().err)
  (next((tmp_path / 'sweep').glob('*seed=1/summary.json'))).unlink()
  assert __main__.main(['store', 'other', f'{tmp_path}/sweep', '--', *ARGUMENTS]) == 2
  assert '1 of the runs are not finished' in capsys.readouterr().err
  assert not (tmp_path / 'other.jsonl').exists()


@pytest.mark.parametrize(
  ('text', 'message'),
  [
    ('{{loss nowhere S-SGD}}', 'nowhere.jsonl: no such file'),
    ('{{lost lenet_mnist S-SGD}}', "unknown function 'lost', must be one of"),
    ('{{loss lenet_mnist}}', "missing a required argument: 'run'"),
    ('{{loss lenet_mnist Adam}}', "unknown run 'Adam', must be one of S-SGD, Local SGD"),
    ('{{final lenet_mnist S-SGD taste}}', "S-SGD has no metric 'taste'"),
    ('{{setting lenet_mnist algorithm}}', 'the runs differ in algorithm'),
    ('{{table}}', 'must be a function and a summary'),
  ],
)
def test_invalid_expressions_are_reported_with_their_line(text, message):
  with pytest.raises(UserError, match=f'line 2: .*{message}'):
    document.fill(f'One line.\nAnd {text}.')


def test_a_damaged_summary_is_refused(tmp_path):
  (tmp_path / 'bad.jsonl').write_text((SUMMARIES / 'lenet_mnist.jsonl').read_text()[:-100])
  with pytest.raises(DataError, match='bad.jsonl: is damaged'):
    summaries.read(tmp_path / 'bad.jsonl')


def test_distance_to_the_published_curves(tmp_path):
  (tmp_path / 'non_identical_s_sgd.csv').write_text('4,1,1,1\n2,1,1,1\n1,1,1,1\n0.5,1,1,1\n')
  path = published.store(tmp_path, tmp_path / 'published.json')
  metrics = [{'step': i, 'epoch': e, 'train_loss': loss} for i, (e, loss) in enumerate([(0, 4), (1.5, 1), (2, 1.1)])]
  run = Run('S-SGD', {'algorithm': 's_sgd', 'partition': 'by_class'}, tuple(metrics))
  # At epoch 1 ours is 4^(1/3), by interpolation of the logarithm between 4 and 1.
  np.testing.assert_allclose(
    published.distances(Sweep('', (run,)), 's_sgd', path), [math.log(2) - math.log(4) / 3, math.log(1.1)]
  )
