import csv
import json
import math
import re
import shutil
import subprocess

import matplotlib as mpl
import numpy as np
import pytest

from vrl_jax import errors, report
from vrl_jax.report import __main__ as cli
from vrl_jax.report import figures, names, series, specs, style

PNG = b'\x89PNG'
SLOWNESS = {'s_sgd': 1.0, 'local_sgd': 0.35, 'easgd': 0.25, 'vrl_sgd': 0.95}


def write_run(folder, lines, status='finished', shares=None, **config):
  folder.mkdir(parents=True)
  (folder / 'config.json').write_text(json.dumps(config))
  clean = lambda v: None if isinstance(v, float) and not math.isfinite(v) else v
  lines = [{key: clean(value) for key, value in line.items()} for line in lines]
  (folder / 'metrics.jsonl').write_text(''.join(json.dumps(line) + '\n' for line in lines))
  if status:
    (folder / 'summary.json').write_text(json.dumps(lines[-1] | {'status': status, 'resumed_from_step': None}))
  if shares:
    (folder / 'partition.json').write_text(json.dumps(shares))
  return folder


def lenet_lines(algorithm, period=20, seed=0, epochs=30, blows_up=False):
  rng = np.random.default_rng(seed)
  period = 1 if algorithm == 's_sgd' else period
  for epoch in range(epochs + 1):
    step = 235 * epoch
    loss = 0.02 + 0.39 * math.exp(-0.12 * SLOWNESS[algorithm] * epoch) * (1 + 0.05 * rng.normal() * (epoch > 0))
    loss = math.nan if blows_up and epoch > 12 else loss * 10 ** max(0, epoch - 6) if blows_up else loss
    drift = 0.0 if algorithm == 's_sgd' else 1e-3 * loss * (epoch > 0) / SLOWNESS[algorithm]
    line = dict(
      step=step, epoch=epoch * 1.0027, communications=step // period, bytes_communicated=step // period * 432_122
    )
    line |= dict(
      train_loss=loss, step_loss=loss * 1.1, consensus_distance=drift, variance_among_workers=10 * drift + 0.01
    )
    line |= dict(correction_norm=drift, seconds=3.1 * epoch + rng.random(), examples_per_second=19_000.0)
    if epoch % 2 == 0:
      line |= dict(
        test_loss=loss * 1.1, test_accuracy=max(0.1, 1 - loss / 3) if loss == loss else 0.1, train_accuracy=0.9
      )
    yield line


def write_lenet(root, seeds=(0, 1, 2)):
  """Four algorithms, three seeds, and one run that diverges."""
  table = [[0] * 10 for _ in range(8)]
  for i in range(80):
    table[i // 10][i // 8] = 750
  shares = {'table': table, 'class_names': [f'digit {i}' for i in range(10)], 'dropped': 32}
  common = dict(task='lenet_mnist', period=20, workers=8, batch_size=32, learning_rate=0.005, partition='by_class')
  entries = []
  for algorithm in SLOWNESS:
    for seed in seeds:
      name, own = f'{algorithm}_seed{seed}', {'algorithm': algorithm, 'seed': seed}
      lines = list(lenet_lines(algorithm, seed=seed))
      write_run(root / name, lines, shares=shares, first_period=None, **common | own)
      entries.append({'name': name, 'overrides': own})
  own = {'algorithm': 'local_sgd', 'learning_rate': 0.5, 'seed': 0}
  write_run(root / 'too_fast', lenet_lines('local_sgd', blows_up=True), 'diverged', first_period=None, **common | own)
  sweep = {'title': 'LeNet <on> MNIST', 'runs': [*entries, {'name': 'too_fast', 'overrides': own}, {'name': 'later'}]}
  (root / 'sweep.json').write_text(json.dumps(sweep))
  return root


def quadratic_lines(algorithm, b, k, first=None, steps=400, rate=0.01):
  """The paper's appendix: f1 = (x + 2b)^2, f2 = 2(x - b)^2, from x = 1."""
  x, delta, centre, sent, since, due = np.ones(2), np.zeros(2), 1.0, 0, 0, first or k
  for step in range(steps + 1):
    mean = abs(centre if algorithm == 'easgd' else x.mean())
    v = np.array([2 * (x[0] + 2 * b), 4 * (x[1] - b)]) - delta
    yield dict(step=step, communications=sent, distance_to_optimum=mean, train_loss=1.5 * mean**2 + 3 * b**2) | dict(
      bytes_communicated=8 * sent, variance_among_workers=0.0 if algorithm == 's_sgd' else v.var(), seconds=step / 1e3
    )
    x, since = x - rate * (v.mean() if algorithm == 's_sgd' else v), since + 1
    sent += algorithm == 's_sgd'
    if algorithm != 's_sgd' and since == due:
      if algorithm == 'easgd':
        e = x - centre
        x, centre = x - 0.45 * e, centre + 0.45 * e.sum()
      else:
        delta = delta + (x.mean() - x) / (since * rate) if algorithm == 'vrl_sgd' else delta
        x = np.full(2, x.mean())
      since, due, sent = 0, k, sent + 1


def write_quadratic(root):
  """The appendix's sweep: 3 x 4 panels of 5 lines."""
  kinds = [('s_sgd', None), ('local_sgd', None), ('easgd', None), ('vrl_sgd', None), ('vrl_sgd', 1)]
  entries = []
  for b in (1, 10, 100):
    for k in (2, 5, 10, 20):
      for algorithm, first in kinds:
        own = dict(b=b, period=k, algorithm=algorithm, first_period=first)
        name = f'{algorithm}{"_w" if first else ""}-b{b}-k{k}'
        write_run(root / name, quadratic_lines(algorithm, b, k, first), task='quadratic', seed=0, **own)
        entries.append({'name': name, 'overrides': own})
  common = {'x': 'step', 'panels': ['b', 'period'], 'log_y': True}
  figure = [
    common | {'name': 'distance', 'y': 'distance_to_optimum'},
    common | {'name': 'variance', 'y': 'variance_among_workers'},
  ]
  (root / 'sweep.json').write_text(json.dumps({'title': 'The appendix', 'runs': entries, 'figure': figure}))
  return root


def write_csv(path, rows=40, start=0.41):
  with path.open('w', newline='') as file:
    csv.writer(file).writerows(
      [start * 0.9**i, 100 - 12 * 0.9**i, start * 0.92**i, 99 - 12 * 0.9**i] for i in range(rows)
    )
  return path


@pytest.fixture(scope='module')
def lenet(tmp_path_factory):
  return write_lenet(tmp_path_factory.mktemp('lenet') / 'sweep')


@pytest.fixture(scope='module')
def quadratic(tmp_path_factory):
  return write_quadratic(tmp_path_factory.mktemp('quadratic') / 'sweep')


def test_reads_runs_sweeps_and_both(lenet, tmp_path):
  sweep = report.read_sweep(lenet)
  assert (sweep.title, len(sweep.runs), sweep.missing) == ('LeNet <on> MNIST', 13, ('later',))
  run = report.read_run(lenet / 'vrl_sgd_seed1')
  assert (run.name, run.algorithm, run.status, run.config['seed']) == ('vrl_sgd_seed1', 'vrl_sgd', 'finished', 1)
  assert len(run.column('train_loss')) == 31 and np.isnan(run.column('test_accuracy')[1])
  assert 95 < run.final('test_accuracy') < 100  # In percent, from the last line that has it.
  assert math.isnan(report.read_run(lenet / 'too_fast').final('train_loss'))
  other = shutil.copytree(lenet, tmp_path / 'other')
  both = report.read_any([lenet, other / 'too_fast'])
  assert len(both.runs) == 14 and len({run.name for run in both.runs}) == 14


def test_forgives_what_a_killed_run_leaves(tmp_path):
  lines = [{'step': 0, 'train_loss': 2.0}, {'step': 5, 'train_loss': 1.5}, {'step': 5, 'train_loss': 1.0}]
  run = write_run(tmp_path / 'run', lines, status=None, algorithm='vrl_sgd', first_period=1, period=20)
  with (run / 'metrics.jsonl').open('a') as file:
    file.write('{"step": 10, "train_')
  read = report.read_run(run)
  assert (read.status, read.algorithm, len(read.metrics), read.final('train_loss')) == (
    'unfinished',
    'vrl_sgd_w',
    2,
    1.0,
  )
  assert read.final('test_accuracy') is None


@pytest.mark.parametrize(
  ('file', 'text', 'said'),
  [
    ('config.json', None, 'no such file'),
    ('config.json', '{"a": ', 'not JSON'),
    ('config.json', '[1]', 'a JSON list'),
    ('metrics.jsonl', None, 'no such file'),
    ('metrics.jsonl', '', 'no log point'),
    ('metrics.jsonl', '{"step": 1}\nnonsense\n', 'line 2 is not JSON'),
    ('metrics.jsonl', '{"epoch": 1}\n', 'line 1 is not an object with a "step"'),
    ('summary.json', 'x', 'not JSON'),
    ('partition.json', '{"table": [[1, 2]], "class_names": ["a"]}', 'differ in length'),
  ],
)
def test_bad_files_are_told_in_one_line(tmp_path, file, text, said):
  run = write_run(tmp_path / 'run', [{'step': 0}], algorithm='s_sgd')
  (run / file).unlink(missing_ok=True)
  if text is not None:
    (run / file).write_text(text)
  with pytest.raises(errors.DataError, match=said) as caught:
    report.read_run(run)
  assert file in str(caught.value) and '\n' not in str(caught.value)


def test_table(lenet):
  sweep = report.read_any(lenet)
  text = report.comparison_table(sweep).splitlines()
  assert [title for title in re.split('  +', text[0])][:4] == ['run', 'train loss', 'test acc. %', '× S-SGD']
  assert 'distance' not in text[0] and len(text) == 2 + 5
  losses = [run.final('train_loss') for run in sweep.runs if run.algorithm == 'vrl_sgd']
  row = next(line for line in text if line.startswith('vrl_sgd '))
  assert f'{np.mean(losses):.5f} ± {np.std(losses, ddof=1):.5f}' in row and '152 MB' in row and ' 352 ' in row
  markdown = report.comparison_table(sweep, 'markdown').splitlines()
  assert len({line.count('|') for line in markdown}) == 1
  bold = [line for line in markdown if '**' in line]
  assert len(bold) == 1 and bold[0].startswith('| s_sgd ')
  assert text[-1].endswith('diverged') and ' nan ' in text[-1]
  with pytest.raises(errors.UserError, match='csv'):
    report.comparison_table(sweep, 'csv')


def test_best_is_found_among_the_comparable(quadratic):
  sweep = report.read_any(quadratic)
  assert series.facets(sweep.runs) == ['b', 'period']
  rows = [re.split(r' *\| *', line) for line in report.comparison_table(sweep, 'markdown').splitlines()]
  found = {row[1]: row[3] for row in rows}
  assert found['vrl_sgd_w-b100-k20'] == '**3.10e-06**' and found['vrl_sgd-b1-k20'].startswith('**')
  assert found['s_sgd-b100-k20'].startswith('5.') and found['local_sgd-b100-k20'] == '12.0'


def test_one_s_sgd_run_serves_all_periods(tmp_path):
  write_run(tmp_path / 's', lenet_lines('s_sgd'), algorithm='s_sgd', period=1, seed=0)
  for k in (10, 40):
    for algorithm in ('local_sgd', 'vrl_sgd'):
      write_run(tmp_path / f'{algorithm}{k}', lenet_lines(algorithm, k), algorithm=algorithm, period=k, seed=0)
  sweep = report.read_any(tmp_path)
  assert series.facets(sweep.runs) == ['period']
  lines = series.make_lines(sweep.runs, ['period'])
  assert [line.name for line in series.lines_at(lines, ['period'], ['40'])] == ['s', 'local_sgd40', 'vrl_sgd40']
  table = report.comparison_table(sweep).splitlines()
  assert all(re.search(r' \d+\.\d\d +[\d,]+ +[\d.]+ [MG]B', line) for line in table[2:])
  assert report.comparison_figure(
    sweep, tmp_path / 'figure.svg', {'y': 'train_loss', 'x': 'epoch', 'panels': ['period']}
  )


def test_variants_and_repetitions_have_labels_of_their_own(tmp_path):
  for i, alpha in enumerate((0.1, 0.2, 0.2)):
    write_run(tmp_path / f'run{i}', lenet_lines('easgd'), algorithm='easgd', alpha=alpha, seed=0)
  write_run(tmp_path / 'w', lenet_lines('vrl_sgd'), algorithm='vrl_sgd', first_period=1, period=20, alpha=None, seed=0)
  lines = series.make_lines(report.read_any(tmp_path).runs)
  labels = ['EASGD, α = 0.1', 'EASGD, α = 0.2 (run1)', 'EASGD, α = 0.2 (run2)', 'VRL-SGD-W']
  assert [line.label for line in lines] == labels
  assert len({style.look(line.algorithm, line.variant, line.variants) for line in lines}) == 4


def test_seeds_with_other_log_points(tmp_path):
  for seed, stride in enumerate((1, 2)):
    lines = [{'step': s, 'epoch': s, 'train_loss': float(s + 2 * seed)} for s in range(0, 9 - seed, stride)]
    write_run(tmp_path / f'a-{seed}', lines, algorithm='local_sgd', seed=seed)
  (line,) = series.make_lines(report.read_any(tmp_path).runs)
  curve = series.curve(line.runs, 'epoch', 'train_loss')
  assert line.name == 'a'
  np.testing.assert_allclose(curve.x, np.arange(7))
  np.testing.assert_allclose([curve.low, curve.mean, curve.high], [np.arange(7), np.arange(7) + 1, np.arange(7) + 2])


def test_appendix_grid(quadratic, tmp_path):
  before = dict(mpl.rcParams)
  first, second = report.comparison_figure(report.read_any(quadratic), tmp_path)
  assert (first.name, second.name) == ('distance.png', 'variance.png')
  assert first.read_bytes().startswith(PNG) and first.stat().st_size < 400_000
  assert dict(mpl.rcParams) == before
  runs = report.read_any(quadratic).runs
  (figure,) = specs.figures(runs, {'y': 'distance_to_optimum', 'x': 'step', 'panels': ['b', 'period']})
  axes = figures.draw(runs, figure).axes
  assert len(axes) == 12 and all(len(ax.lines) == 5 and ax.get_yscale() == 'log' for ax in axes)
  assert [ax.get_title() for ax in axes[3:5]] == ['b = 1, k = 20', 'b = 10, k = 2']


@pytest.mark.parametrize(
  'values', [[1.0, 1e-20, 0.0, 0.0], [0.0, 0.0], [None], [3.0], [1.0, 1e200, 1e308, None], [2.0, -1.0]]
)
@pytest.mark.parametrize('log', [True, False])
def test_odd_values_draw_without_warnings(tmp_path, values, log):
  for name in ('vrl_sgd', 'new_thing'):
    lines = [{'step': i, 'communications': i, 'train_loss': value} for i, value in enumerate(values)]
    write_run(tmp_path / name, lines, 'diverged', algorithm=name)
  spec = {'y': 'train_loss', 'x': ['step', 'communications'], 'log_y': log}
  (path,) = report.comparison_figure(report.read_any(tmp_path), tmp_path / 'x.png', spec)
  assert path.read_bytes().startswith(PNG)


def test_bad_specs(lenet, tmp_path):
  sweep = report.read_any(lenet)
  for spec in ({'y': 'beauty'}, {'x': 'mood'}, {'panels': ['moon']}, {'colour': 'red'}, {'name': '../up'}):
    with pytest.raises(
      errors.UserError, match=str(next(iter(np.ravel(list(spec.values()) if 'colour' not in spec else 'colour'))))
    ):
      report.comparison_figure(sweep, tmp_path, spec)


def test_reference(lenet, tmp_path):
  here = report.read_reference(write_csv(tmp_path / 'non_identical_vrl_sgd.csv'))
  there = report.read_reference(write_csv(tmp_path / 'identical_s_sgd.csv'))
  assert (here.label, here.algorithm, here.identical) == ('VRL-SGD (published)', 'vrl_sgd', False)
  assert (there.algorithm, there.identical, len(there.columns['test_accuracy'])) == ('s_sgd', True, 40)
  runs = report.read_any(lenet).runs
  figure = specs.figures(runs, None)[0]
  left, right = figures.draw(runs, figure, [here, there]).axes
  assert (
    len(left.lines) - len(right.lines) == 1
  )  # The other case is not drawn, nor anything published by communications.
  for text in ('1,2,3\n', '1,2,3,4\n1,2,x,4\n', ''):
    (tmp_path / 'bad.csv').write_text(text)
    with pytest.raises(errors.DataError, match='bad.csv'):
      report.read_reference(tmp_path / 'bad.csv')


def test_report_page(lenet, tmp_path):
  csv_file = write_csv(tmp_path / 'non_identical_local_sgd.csv')
  written = report.write_report(lenet, reference=[csv_file], title='A & B', output=tmp_path / 'out')
  assert list(written) == ['report', 'loss', 'accuracy', 'consensus', 'variance'] and all(
    p.exists() for p in written.values()
  )
  page = written['report'].read_text()
  assert '<h1>A &amp; B</h1>' in page and '<strong>' in page and 'worker 7' in page and '32 examples left out' in page
  assert not re.search(r'(src|href)="(?!data:)', page) and '@import' not in page
  data = json.loads(re.search(r'id="data">(.*?)</script>', page, re.S).group(1))
  assert [line['label'] for line in data['lines']][-1] == 'Local SGD (published)'
  assert {axis['key'] for axis in data['axes']} >= {'epoch', 'communications', 'bytes_communicated', 'seconds'}
  assert data['lines'][0]['seeds'] == 3 and len(data['lines'][0]['y']['test_accuracy']['mean']) == 16


def test_smallest_report(tmp_path):
  run = write_run(tmp_path / 'only', [{'step': 0, 'train_loss': None}], status=None)
  written = report.write_report(run)
  assert written['report'] == run / 'report.html' and 'unfinished' in written['report'].read_text()


def test_command_line(lenet, tmp_path, capsys):
  assert cli.main([str(lenet), '--output', str(tmp_path / 'out')]) == 0
  out = capsys.readouterr().out
  assert 'train loss' in out and 'report.html' in out
  (tmp_path / 'file').write_text('')
  bad = [
    ([], 2),
    (['--nonsense'], 2),
    ([str(tmp_path / 'nowhere')], 3),
    ([str(tmp_path)], 3),
    ([str(tmp_path / 'file')], 3),
  ]
  bad += [
    ([str(lenet), '--reference', str(tmp_path / 'no.csv')], 3),
    ([str(lenet), '--output', str(tmp_path / 'file')], 2),
  ]
  for arguments, status in bad:
    assert cli.main(arguments) == status
    assert len(capsys.readouterr().err.strip().splitlines()) == 1


def test_names():
  assert (
    names.algorithm('cocod_sgd') == 'CoCoD-SGD'
    and names.bytes_(999_600) == '1 MB'
    and names.number(12345.6) == '12,346'
  )
  assert (
    style.look('anything') == style.look('anything')
    and style.look('vrl_sgd').color == style.look('vrl_sgd', 0, 3).color
  )


PROBE = """<script>
const report = [];
const click = (name, value) => document.querySelector(`input[name=${name}][value=${value}]`).click();
const look = () => report.push([...document.querySelectorAll('#chart svg text.name')].map((n) => n.textContent).join('/')
  + '#' + document.querySelectorAll('#chart svg g path[fill=none]').length);
look(); click('y', 'test_accuracy'); click('x', 'bytes_communicated'); look(); click('y', 'consensus_distance'); click('logY', 'linear');
document.querySelector('#legend button').click(); look();
for (let i = 0; i < 2; i++) {
  document.getElementById('chart').dispatchEvent(new KeyboardEvent('keydown', {key: 'ArrowRight'}));
  report.push(document.querySelector('#tip strong').textContent);
}
document.title = JSON.stringify(report);
</script>"""


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which('chromium'), reason='chromium is not installed')
def test_page_in_a_browser(lenet, tmp_path):
  page = report.write_report(lenet, output=tmp_path)['report']
  page.write_text(page.read_text().replace('</body>', PROBE + '</body>'))
  flags = '--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking'.split()
  flags += [
    '--disable-component-update',
    '--disable-sync',
    f'--user-data-dir={tmp_path / "profile"}',
    '--window-size=1200,2400',
  ]
  command = ['chromium', *flags, '--dump-dom', page.resolve().as_uri()]
  dom = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout
  said = json.loads(re.search('<title>(.*?)</title>', dom).group(1))
  assert said[0] == 'epochs/train loss#5'
  assert said[1] == 'bytes sent per worker/test accuracy (%)#5'
  assert said[2] == 'bytes sent per worker/consensus distance#4'
  assert said[3].startswith('bytes sent') and said[4].startswith('bytes sent') and said[3] != said[4]
