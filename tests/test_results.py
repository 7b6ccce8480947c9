"""RESULTS.md says what the stored summaries say, and those are of the runs that its commands make."""

import json
import math
import re
import shutil

import numpy as np
import pytest

from results import DOCUMENT, FIGURES, SUMMARIES, TEMPLATE, __main__, document, pictures, published, summaries
from vrl_jax import launching, report
from vrl_jax.errors import DataError, UserError
from vrl_jax.report.records import Run, Sweep

NAMES = sorted(path.stem for path in SUMMARIES.glob('*.jsonl'))


def read(name):
  return summaries.read(SUMMARIES / f'{name}.jsonl')


def finals(name, metric):
  """{(run, seed): last value}, read from the file by hand."""
  head, *runs = [json.loads(line) for line in (SUMMARIES / f'{name}.jsonl').read_text().splitlines()]
  seed = lambda run: run['config'].get('seed', head['config'].get('seed'))
  return {(run['name'].split(', seed')[0], seed(run)): run['metrics'][metric][-1] for run in runs}


def test_the_document_is_the_filled_template():
  assert DOCUMENT.read_text() == document.fill(TEMPLATE.read_text()), 'run `make results`'


@pytest.mark.parametrize('name', NAMES)
def test_a_number_that_is_changed_is_found_out(name, tmp_path):
  """In a summary: text and figures are no longer what it says."""
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
  drawn = [FIGURES / pictures.file_name(read(name), figure) for of, figure in document.figures(template) if of == name]
  in_figure = [pictures.source(file) != pictures.digest(summaries.read(path)) for file in drawn]
  assert all(in_figure)
  # A grid of many runs has its figure, and in the text a few of its numbers.
  assert in_text or (in_figure and f'{{{{table {name}}}}}' not in template)


def test_the_text_has_no_decimal_number_of_its_own():
  text = re.sub(r'```.*?```|\{\{.*?\}\}|`.*?`|arXiv:[\d.]+', '', TEMPLATE.read_text(), flags=re.S)
  assert re.findall(r'.{0,30}\d[.,]\d.{0,10}', text) == []


@pytest.mark.parametrize('name', NAMES)
def test_the_commands_make_the_stored_runs(name):
  summary = read(name)
  summaries.check_arguments(summary.arguments, summary.sweep)
  assert all(run.status in ('finished', 'diverged') for run in summary.sweep.runs)


def test_the_numbers_of_examples_are_the_datas():
  of_task = {
    'lenet_mnist': {'mnist': 60_000, 'mnist_5k': 4_000},
    'textcnn_dbpedia': 77_854,
    'mlp_tiny_imagenet': 10_000,
  }
  for summary in map(read, NAMES):
    config = summary.sweep.runs[0].config
    expected = of_task.get(config['task'], 2)  # one example for each of two quadratics
    assert summary.examples == (expected[config['dataset']] if isinstance(expected, dict) else expected)


def test_the_tables_numbers_are_the_stored_ones():
  """Without the code that filled them in."""
  by_run, counts = finals('lenet_mnist', 'train_loss'), finals('lenet_mnist', 'communications')
  for name in ('S-SGD', 'VRL-SGD', 'Local SGD', 'EASGD'):
    losses = [loss for (run, _), loss in by_run.items() if run == name]
    row = next(line for line in DOCUMENT.read_text().splitlines() if line.startswith(f'| {name} |'))
    cells = [cell.strip(' *') for cell in row.split('|')[1:-1]]
    assert cells[1].startswith(f'{np.mean(losses):.5f} ±') and len(losses) == 2
    ratio = np.mean([loss / by_run['S-SGD', seed] for (run, seed), loss in by_run.items() if run == name])
    assert cells[3].startswith(f'{ratio:.2f}')
    assert cells[4] == f'{counts[name, 0]:,}'


def test_what_must_be_shown():
  losses, sent = finals('lenet_mnist', 'train_loss'), finals('lenet_mnist', 'communications')
  for seed in (0, 1):
    base = losses['S-SGD', seed]
    assert losses['VRL-SGD', seed] <= 1.10 * base and losses['VRL-SGD-W', seed] <= 1.10 * base
    assert min(losses['Local SGD', seed], losses['EASGD', seed]) > 1.4 * base
    assert sent['S-SGD', seed] == 20 * sent['VRL-SGD', seed] == 7020
  assert read('lenet_mnist').sweep.runs[0].config['epochs'] >= 30


def test_the_figures_are_drawn_from_the_summaries():
  shown = document.figures(TEMPLATE.read_text())
  files = {pictures.file_name(read(name), figure): name for name, figure in shown}
  assert {path.name for path in FIGURES.iterdir()} == set(files)
  for file, name in files.items():
    assert pictures.source(FIGURES / file) == pictures.digest(read(name)), f'{file}: run `make results`'
    assert (FIGURES / file).stat().st_size < 150_000
  assert sum(path.stat().st_size for path in SUMMARIES.iterdir()) < 1_500_000


ARGUMENTS = [
  '--config=tests/eight_quadratics.py',
  '--config.steps=12',
  '--config.seeds=(0,1)',
  '--config.log_every_step',
]


def test_a_sweep_is_stored_and_read_again(tmp_path, monkeypatch, capsys):
  monkeypatch.setattr(__main__, 'SUMMARIES', tmp_path)
  assert launching.main(['launch.py', *ARGUMENTS, f'--workdir={tmp_path}/sweep']) == 0
  assert __main__.main(['store', 'small', f'{tmp_path}/sweep', '--', *ARGUMENTS]) == 0
  stored, folder = summaries.read(tmp_path / 'small.jsonl'), report.read_sweep(tmp_path / 'sweep')
  assert stored.arguments == tuple(ARGUMENTS)
  assert report.comparison_table(stored.sweep) == report.comparison_table(folder)
  for ours, theirs in zip(stored.sweep.runs, folder.runs, strict=True):
    np.testing.assert_allclose(ours.column('distance_to_optimum'), theirs.column('distance_to_optimum'), rtol=1e-4)
    assert len(ours.metrics) == 13
  assert 'data_dir' not in stored.sweep.runs[0].config  # of this machine

  capsys.readouterr()
  assert __main__.main(['store', 'other', f'{tmp_path}/sweep', '--', *ARGUMENTS, '--config.period=3']) == 2
  assert re.fullmatch(r'error: .*seed=0: period=\d+ there, 3 with .*\n', capsys.readouterr().err)
  (next((tmp_path / 'sweep').glob('*seed=1/summary.json'))).unlink()
  assert __main__.main(['store', 'other', f'{tmp_path}/sweep', '--', *ARGUMENTS]) == 2
  assert '1 of the runs are not finished' in capsys.readouterr().err
  assert not (tmp_path / 'other.jsonl').exists()


@pytest.mark.parametrize(
  ('text', 'told'),
  [
    ('{{loss nowhere S-SGD}}', 'nowhere.jsonl: no such file'),
    ('{{lost lenet_mnist S-SGD}}', "no function 'lost'"),
    ('{{loss lenet_mnist}}', "missing a required argument: 'run'"),
    ('{{loss lenet_mnist Adam}}', "no run 'Adam'; there are S-SGD, Local SGD"),
    ('{{final lenet_mnist S-SGD taste}}', "S-SGD has no 'taste'"),
    ('{{setting lenet_mnist algorithm}}', 'the runs differ in algorithm'),
    ('{{table}}', 'is no function with a summary'),
  ],
)
def test_mistakes_in_the_text_are_told_with_their_line(text, told):
  with pytest.raises(UserError, match=f'line 2: .*{told}'):
    document.fill(f'One line.\nAnd {text}.')


def test_a_damaged_summary_is_told(tmp_path):
  (tmp_path / 'bad.jsonl').write_text((SUMMARIES / 'lenet_mnist.jsonl').read_text()[:-100])
  with pytest.raises(DataError, match='bad.jsonl: is damaged'):
    summaries.read(tmp_path / 'bad.jsonl')


def test_distance_to_the_published_curves(monkeypatch, tmp_path):
  monkeypatch.setattr(published, 'STORED', tmp_path / 'published.json')
  (tmp_path / 'non_identical_s_sgd.csv').write_text('4,1,1,1\n2,1,1,1\n1,1,1,1\n0.5,1,1,1\n')
  published.store(tmp_path)
  metrics = [{'step': i, 'epoch': e, 'train_loss': loss} for i, (e, loss) in enumerate([(0, 4), (1.5, 1), (2, 1.1)])]
  run = Run('S-SGD', {'algorithm': 's_sgd', 'partition': 'by_class'}, tuple(metrics))
  # At epoch 1 ours is 4^(1/3), between 4 and 1 on a logarithmic axis.
  np.testing.assert_allclose(
    published.distances(Sweep('', (run,)), 's_sgd'), [math.log(2) - math.log(4) / 3, math.log(1.1)]
  )
