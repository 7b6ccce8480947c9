"""Run and sweep directories that are damaged, or written to attack whoever opens the report."""

import html.parser
import json
import os
import subprocess
import sys
import xml.etree.ElementTree

import pytest
from support.report_samples import write_csv, write_run

from vrl_jax import errors, report
from vrl_jax.report import __main__ as cli
from vrl_jax.report.records import Run, Sweep

HOSTILE = (
  '</script><script>alert(1)</script>',
  '"><img src=x onerror=alert(1)>',
  "' onmouseover='alert(1)",
  '</title></style><svg onload=alert(1)> <!-- $table ${script} &lt;b&gt;',
)


def _write_sweep(root, texts):
  """A sweep with the texts in every field of every file, and in the names of directories and files."""
  entries = [{'name': f'missing {text}'} for text in texts]
  for i, text in enumerate(texts):
    name = text.replace('/', '')
    more = {text: 1.0, 'test_accuracy': 0.5}
    points = [{'step': step, 'epoch': step / 4, 'train_loss': 2.0 / (1 + step)} | more for step in (0, 4, 8)]
    common = {'task': texts[0], texts[0]: texts[0]}
    config = {'algorithm': text, 'dataset': text, 'partition': text, 'workers': 2, text: text, 'nested': {text: [text]}}
    partition = {'table': [[i, 5], [5, 0]], 'class_names': [text, f'{text}2'], 'dropped': 7}
    write_run(root / name, points, text, partition, **common | config)
    entries.append({'name': name, 'overrides': {text: text}})
  figure = {'name': texts[1], 'y': texts[1], 'x': 'step', 'title': texts[0]}
  sweep = {'title': texts[0], 'runs': entries, 'figure': [figure, {'y': 'train_loss'}]}
  (root / 'sweep.json').write_text(json.dumps(sweep))
  return root


class _Content(html.parser.HTMLParser):
  """The elements with their attributes, and all texts, those of attributes among them."""

  def __init__(self, page):
    super().__init__()
    self.elements, self.sources, self.texts = [], [], []
    self.feed(page)
    self.close()

  def handle_starttag(self, tag, attrs):
    self.elements.append((tag, *(name for name, _ in attrs)))
    self.sources += [value[:22] for name, value in attrs if name == 'src']
    self.texts += [value for name, value in attrs if name in ('title', 'alt', 'aria-label')]

  def handle_data(self, data):
    self.texts.append(data)

  def handle_comment(self, data):
    self.elements.append(('a comment',))

  def handle_decl(self, decl):
    self.elements.append(('a declaration', decl))


@pytest.mark.parametrize('as_arguments', [False, True])
def test_no_element_attribute_or_script_stems_from_the_files(tmp_path, as_arguments):
  found = []
  for kind, texts in (('hostile', HOSTILE), ('harmless', ['t' * len(text) for text in HOSTILE])):
    texts = [f'{i}{text}' for i, text in enumerate(texts)]
    root = _write_sweep(tmp_path / kind, texts)
    reference = write_csv(tmp_path / f'{texts[1]}.csv')
    folders = sorted(root / name for name in os.listdir(root) if name[0].isdigit()) if as_arguments else root
    written = report.write_report(folders, [reference], texts[2] if as_arguments else None, tmp_path / f'out {kind}')
    found.append((texts, _Content(written['report'].read_text())))
    for picture in written['report'].parent.glob('figures/*.svg'):
      tags = {element.tag.rpartition('}')[2] for element in xml.etree.ElementTree.parse(picture).iter()}
      assert not tags & {'script', 'img', 'foreignObject'}
  (texts, hostile), (_, harmless) = found
  assert hostile.elements == harmless.elements
  assert set(hostile.sources) == {'data:image/png;base64,'}
  shown = '\n'.join(hostile.texts)
  assert all(text in shown for text in texts)  # as text, and nothing is lost


def test_values_that_no_file_can_have_are_escaped_too():
  """Values passed by Python code; `read_run` refuses a text as the number of dropped examples."""
  partition = {'table': [[1, 2]], 'class_names': ['a', 'b'], 'dropped': HOSTILE[1]}
  run = Run('a', {'algorithm': 's_sgd'}, ({'step': 1.0, 'train_loss': 1.0},), partition=partition)
  content = _Content(report.page.render(Sweep('', (run,))))
  assert not any(tag == 'img' for tag, *_ in content.elements) and any(HOSTILE[1] in text for text in content.texts)


POINTS = [{'step': 0, 'train_loss': 2.0, 'seconds': 1.0}, {'step': 4, 'train_loss': 1.0, 'seconds': 2.0}]
HUGE, DEEP = '1' + '0' * 5000, '[' * 100_000
LESS_DEEP = '[' * 400 + ']' * 400  # that `json` can still read


def _report(capsys, *arguments):
  """The status of the command, and what it wrote to stderr."""
  status = cli.main([str(argument) for argument in arguments])
  return status, capsys.readouterr().err.splitlines()


@pytest.mark.parametrize(
  ('file', 'text'),
  [
    ('metrics.jsonl', f'{{"step": 0, "train_loss": {HUGE}, "seconds": -{HUGE}}}\n{{"step": 4, "train_loss": 1}}\n'),
    ('metrics.jsonl', f'{{"step": 0, "train_loss": 1{"0" * 400}}}\n{{"step": 4, "train_loss": 1e999, "seconds": 1}}\n'),
    ('metrics.jsonl', '{"step": 0, "\\ud800": 1.0, "train_loss": 2.0}\n{"step": 4, "train_loss": 1.0}\n'),
    ('config.json', f'{{"algorithm": "vrl_sgd", "period": {HUGE}, "seed": -{HUGE}, "b": [{HUGE}]}}'),
    ('config.json', '{"algorithm": "\\ud800", "\\udfff": "\\ud800", "task": "\\u0000\\u001b[2J", "period": 1e999}'),
    ('summary.json', f'{{"status": "finished", "train_loss": {HUGE}, "communications": {HUGE}, "seconds": 1e308}}'),
    ('summary.json', '{"status": "\\ud800", "train_loss": "\\ud800"}'),
    ('partition.json', '{"table": [[1, 2]], "class_names": ["\\ud800", null], "dropped": 3}'),
  ],
)
def test_values_without_meaning_cost_only_themselves(tmp_path, capsys, file, text):
  for name in ('other', 'run'):
    write_run(tmp_path / name, POINTS, algorithm='vrl_sgd', period=5, seed=len(name))
  (tmp_path / 'run' / file).write_text(text)
  assert _report(capsys, tmp_path) == (0, [])
  assert _Content((tmp_path / 'report.html').read_text(encoding='utf-8')).elements
  assert all(xml.etree.ElementTree.parse(path) for path in tmp_path.glob('figures/*.svg'))


@pytest.mark.parametrize(
  ('file', 'text', 'message'),
  [
    ('config.json', DEEP, 'is nested more than 50 levels deep'),
    ('config.json', f'{{"b": {LESS_DEEP}}}', 'is nested more than 50 levels deep'),
    ('summary.json', '{"a": ' * 100_000, 'is nested more than 50 levels deep'),
    ('partition.json', LESS_DEEP, 'is nested more than 50 levels deep'),
    ('metrics.jsonl', f'{{"step": 0, "train_loss": {LESS_DEEP}}}\n', 'line 1 is nested more than 50 levels deep'),
    ('metrics.jsonl', f'{{"step": {HUGE}}}\n', 'line 1 must be an object with a "step", a finite number'),
    ('metrics.jsonl', '{"step": NaN}\n', 'line 1 must be an object with a "step", a finite number'),
    ('partition.json', '{"table": [["1", 2]]}', 'must have a "table" of examples per worker and class'),
    ('partition.json', f'{{"table": [[{HUGE}, 2]]}}', 'must have a "table" of examples per worker and class'),
    ('partition.json', '{"table": [[-1, 2.5]]}', 'must have a "table" of examples per worker and class'),
    ('partition.json', '{"table": [[], []]}', 'must have a "table" of examples per worker and class'),
    ('partition.json', '{"table": [[1, 2]], "class_names": 2}', 'must have equal lengths'),
    ('partition.json', '{"table": [[1, 2]], "dropped": "<img>"}', '"dropped" must be a number of examples'),
  ],
)
def test_a_damaged_run_is_left_out_and_reported_in_one_line(tmp_path, capsys, file, text, message):
  for name in ('good', 'run'):
    write_run(tmp_path / name, POINTS, algorithm='vrl_sgd', period=len(name))
  (tmp_path / 'run' / file).write_text(text)
  with pytest.raises(errors.DataError, match=message):
    report.read_sweep(tmp_path)
  for arguments in ([tmp_path], [tmp_path / 'good', tmp_path / 'run', '--output', tmp_path]):
    (tmp_path / 'report.html').unlink(missing_ok=True)
    status, lines = _report(capsys, *arguments)
    assert (status, len(lines)) == (3, 1) and message in lines[0] and str(tmp_path / 'run' / file) in lines[0]
    page = (tmp_path / 'report.html').read_text()
    assert '>VRL-SGD<' in page and f'{file}: ' in page
  write_run(tmp_path / 'run2', POINTS, algorithm='vrl_sgd', period=7)
  (tmp_path / 'run2' / file).write_text(text)
  status, lines = _report(capsys, tmp_path)
  assert (status, len(lines)) == (3, 1) and lines[0].endswith('the report lacks 2 runs that cannot be read')
  status, lines = _report(capsys, tmp_path / 'run')  # nothing is left to show
  assert (status, len(lines)) == (3, 1) and message in lines[0]


@pytest.mark.parametrize(
  ('sweep', 'status', 'message'),
  [
    ({'runs': 5}, 3, '"runs" must be a list of objects with a "name"'),
    ({'runs': [{'name': 'run', 'overrides': 'x'}]}, 3, '"overrides" of \'run\' must be an object'),
    ({'runs': [{'name': 'run', 'folder': 5}]}, 3, '"folder" of \'run\' must be a string'),
    ({'runs': [{'name': 'a', 'folder': 'run'}, {'name': 'b', 'folder': 'x' * 5000}]}, 0, None),
    ({'runs': [{'name': 'run'}, {'name': 'x' * 5000}, {'name': 'a\0b'}, {'name': '\ud800'}]}, 0, None),
    ({'title': ['\ud800', {}]}, 0, None),
    ({'figure': {'title': '日本', 'x': 'step'}}, 0, None),  # not in the font of the figures
    ({'title': '$x^{$', 'figure': {'title': '$x^{$', 'y': '$x^{$', 'x': 'step'}}, 0, None),
    ({'figure': 5}, 3, '"figure" must be an object or a list of objects'),
    ({'figure': {'x': 5}}, 2, 'figure: x=5, must be a string or a list of strings'),
    ({'figure': {'y': ['train_loss']}}, 2, "figure: y=['train_loss'], must be a string"),
    ({'figure': {'panels': [{}]}}, 2, 'figure: panels=[{}], must be a string or a list of strings'),
    ({'figure': {'title': {}, 'x': 'step'}}, 2, 'figure: title={}, must be a string'),
    ({'figure': {'log_y': 'no', 'x': 'step'}}, 2, "figure: log_y='no', must be true or false"),
    ({'figure': {'name': '\0', 'x': 'step'}}, 2, 'must be a file name'),
    ({'figure': {'x': []}}, 0, None),
    ({'figure': {'y': '../up'}}, 2, "figure: name='../up', must be a file name"),
    ({'figure': {'y': 'test_accuracy'}}, 2, "figure: no run has the metric 'test_accuracy'"),
  ],
)
def test_a_damaged_sweep(tmp_path, capsys, sweep, status, message):
  points = [point | {'$x^{$': 1.0} for point in POINTS]
  write_run(tmp_path / 'run', points, algorithm='$x^{$', period=5, **{'$x^{$': '$x^{$'})
  (tmp_path / 'sweep.json').write_text(json.dumps(sweep))
  found, lines = _report(capsys, tmp_path)
  assert (found, len(lines)) == (status, message is not None) and all(message in line for line in lines)
  # With invalid figures the page is made with the default ones.
  assert (tmp_path / 'report.html').exists() == (status in (0, 2))


def test_a_title_is_no_formula(tmp_path, capsys):
  settings = [
    {'algorithm': name, 'b': b, 'period': k} for name in ('$a$', '$b^{$') for b in ('$1^{$', 2) for k in (1, 2)
  ]
  for i, config in enumerate(settings):
    write_run(tmp_path / f'$x^{{${i}', POINTS, **config)
  figure = [{'y': 'train_loss', 'x': 'step', 'panels': ['b'], 'title': '$x^{$'}]
  figure += [{'name': 'map', 'y': 'train_loss', 'x': 'period', 'against': 'b', 'title': r'\$y$'}]
  (tmp_path / 'sweep.json').write_text(json.dumps({'figure': figure}))
  assert _report(capsys, tmp_path, '--title', '$x^{$') == (0, [])
  lines = {name: (tmp_path / f'figures/{name}.svg').read_text() for name in ('train_loss', 'map')}
  assert '>$x^{$<' in lines['train_loss'] and '>b = $1^{$<' in lines['train_loss'] and '>$b^{$' in lines['train_loss']
  assert r'>\$y$<' in lines['map'] and '>$1^{$<' in lines['map']


def test_means_beyond_the_range_of_floats(tmp_path, capsys):
  for seed, loss in enumerate((1e308, 1.7e308, 1e999)):
    points = [{'step': step, 'train_loss': loss, 'test_accuracy': -loss, 'seconds': loss} for step in (0, 1e300)]
    write_run(tmp_path / f'{seed}', [{'step': 0}], algorithm='s_sgd', seed=seed)
    (tmp_path / f'{seed}/metrics.jsonl').write_text('\n'.join(map(json.dumps, points)) + '\n')
    (tmp_path / f'{seed}/summary.json').unlink()
    assert _report(capsys, tmp_path) == (0, [])


@pytest.mark.parametrize(
  ('output', 'status', 'message'),
  [
    ('| true', 0, ''),  # a reader that leaves early, as `head` does
    ('> /dev/full', 5, 'error: stdout cannot be written (No space left on device)\n'),
  ],
)
def test_output_that_cannot_be_written(tmp_path, output, status, message):
  write_run(tmp_path / 'run', POINTS, algorithm='vrl_sgd')
  command = f'"$0" -m vrl_jax.report "$1" {output}; exit ${{PIPESTATUS[0]}}'
  result = subprocess.run(['bash', '-c', command, sys.executable, tmp_path], capture_output=True, text=True)
  assert (result.returncode, result.stderr) == (status, message)
  assert (tmp_path / 'report.html').exists() == (status == 0)


def test_home_directories_are_expanded(tmp_path, monkeypatch, capsys):
  """Shells do not expand them in `--output=~/report`."""
  monkeypatch.setenv('HOME', str(tmp_path))
  monkeypatch.chdir(tmp_path)
  write_run(tmp_path / 'run', POINTS, algorithm='vrl_sgd')
  curve = write_csv(tmp_path / 'vrl_sgd.csv')
  assert _report(capsys, '~/run', '--output=~/out', '--reference', f'~/{curve.name}') == (0, [])
  assert (tmp_path / 'out' / 'report.html').exists() and not (tmp_path / '~').exists()
  status, lines = _report(capsys, '~/run', '--output=~nosuchuser/out')
  assert (status, lines) == (2, ["error: output='~nosuchuser/out': unknown home directory; use an absolute path"])
