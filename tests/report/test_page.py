"""The HTML page: its content, the command that writes it, and its controls in a real browser."""

import base64
import hashlib
import html
import json
import re
import shutil
import subprocess

import pytest
from support.launches import TIMEOUT
from support.report_samples import lenet as lenet
from support.report_samples import quadratic as quadratic
from support.report_samples import write_csv, write_run

from vrl_jax import report
from vrl_jax.report import __main__ as cli
from vrl_jax.report import glossary, names, style, tables


def test_content(lenet, tmp_path):
  csv_file = write_csv(tmp_path / 'non_identical_local_sgd.csv')
  written = report.write_report(lenet, reference=[csv_file], title='A & B', output=tmp_path / 'out')
  assert list(written) == ['report', 'loss', 'accuracy', 'consensus', 'variance']
  assert all(path.exists() for path in written.values())
  page = written['report'].read_text()
  assert '<h1>A &amp; B</h1>' in page and '<strong>' in page and 'worker 7' in page and '32 examples dropped' in page
  assert '<p class="soft">lenet_mnist · data: mnist · partition: by_class · 8 workers · 13 runs' in page
  assert page.index('<details>\n<summary><h2>Static figures') < page.index('<figure>')
  assert not re.search(r'(src|href)="(?!data:)', page) and '@import' not in page
  data = json.loads(re.search(r'id="data">(.*?)</script>', page, re.S).group(1))
  assert [line['label'] for line in data['lines']][-1] == 'Local SGD (published)'
  assert {axis['key'] for axis in data['axes']} >= {'epoch', 'communications', 'bytes_communicated', 'seconds'}
  assert data['lines'][0]['seeds'] == 3 and len(data['lines'][0]['y']['test_accuracy']['mean']) == 16


def test_legend_tables_and_settings_have_the_same_names(lenet, quadratic, tmp_path):
  for sweep, columns in ((lenet, []), (quadratic, ['b', 'k'])):
    page = report.write_report(sweep, output=tmp_path / sweep.parent.name)['report'].read_text()
    labels = [
      line['label'] for line in json.loads(re.search(r'id="data">(.*?)</script>', page, re.S).group(1))['lines']
    ]
    parts = re.split('<h2>', page)
    tables = [next(part for part in parts if part.startswith(title)) for title in ('Final metrics', 'Settings')]
    assert [re.findall('<th scope="row">(.*?)</th>', table) for table in tables] == [labels, labels]
    titles = re.findall('<th scope="col">(.*?)</th>', tables[0])
    assert [re.sub('<.*?>', '', title) for title in titles][: 1 + len(columns)] == ['run', *columns]
  assert labels[:5] == ['S-SGD', 'Local SGD', 'EASGD', 'VRL-SGD', 'VRL-SGD-W']


def test_every_metric_and_column_is_explained(lenet):
  page = report.page.render(report.read_any(lenet))
  columns = re.findall('<th scope="col">(<abbr title="[^"]+">)?', page[: page.index('What the metrics mean')])
  assert len(columns) == 8 and all(columns)
  data = json.loads(re.search(r'id="data">(.*?)</script>', page, re.S).group(1))
  assert all(one['about'] for one in data['metrics'] + data['axes'])
  assert set(glossary.METRICS) == set(names.METRICS) and set(glossary.AXES) == set(names.AXES)
  terms = re.search('What the metrics mean</summary>(.*?)</details>', page, re.S).group(1)
  assert re.findall('<dt>(.*?)</dt>', terms) == [*(one['label'] for one in data['metrics']), '× S-SGD']
  assert set(tables.make_table(report.read_any(lenet).runs).titles) <= set(glossary.COLUMNS)


def test_a_run_without_values(tmp_path):
  run = write_run(tmp_path / 'only', [{'step': 0, 'train_loss': None}], status=None)
  written = report.write_report(run)
  assert written['report'] == run / 'report.html' and 'unfinished' in written['report'].read_text()


def test_the_class_table_of_many_workers_is_bounded(tmp_path):
  partition = {'table': [[5] * 200] * 512, 'class_names': [f'class {i}' for i in range(200)], 'dropped': 0}
  run = write_run(tmp_path / 'only', [{'step': 0, 'train_loss': 1.0}], partition_table=partition)
  page = report.page.render(report.read_any(run))
  assert len(page) < 2e6 and 'worker 31' in page and 'worker 32' not in page
  assert 'The first 32 of 512 workers.' in page


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


def csp_source(text):
  """The source of the content security policy that allows an inline script or style."""
  return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def test_the_policy_allows_the_inline_script_and_style_alone(lenet, tmp_path):
  page = report.write_report(lenet, output=tmp_path)['report'].read_text()
  (policy,) = re.findall('<meta http-equiv="Content-Security-Policy" content="(.*?)">', page)
  allowed = dict(part.split(' ', 1) for part in html.unescape(policy).split('; '))
  (style,), (script,) = re.findall('<style>(.*?)</style>', page, re.S), re.findall('<script>(.*?)</script>', page, re.S)
  none = dict.fromkeys(('default-src', 'base-uri', 'form-action'), "'none'")
  expected = {'style-src': csp_source(style), 'script-src': csp_source(script), 'img-src': 'data:'}
  assert allowed == none | expected
  assert page.index(policy) < page.index('<style>') and not re.search(r'<[^>]* (style|on\w+)=', page)


# Runs before the scripts of the page and collects their errors and violations of the content security policy.
WATCH = """<script>
const failures = [];
addEventListener('error', (event) => failures.push(event.message));
addEventListener('securitypolicyviolation', (event) => failures.push(event.violatedDirective));
</script>"""

# Runs after them, operates the controls like a reader and records what is shown.
PROBE = """<script>
const seen = [];
const click = (name, value) => document.querySelector(`input[name=${name}][value=${value}]`).click();
const look = () => seen.push([...document.querySelectorAll('#chart svg text.name')].map((n) => n.textContent).join('/')
  + '#' + document.querySelectorAll('#chart svg g path[fill=none]').length);
look(); click('y', 'test_accuracy'); click('x', 'bytes_communicated'); look(); click('y', 'consensus_distance'); click('logY', 'linear');
document.querySelector('#legend button').click(); look();
for (let i = 0; i < 2; i++) {
  document.getElementById('chart').dispatchEvent(new KeyboardEvent('keydown', {key: 'ArrowRight'}));
  seen.push(document.querySelector('#tip strong').textContent);
}
const values = (name) => [...document.querySelectorAll(`input[name=${name}]`)].map((input) => input.value);
const lines = {};
for (const y of values('y')) for (const x of values('x')) {
  click('y', y); click('x', x);
  lines[`${y} ${x}`] = document.querySelectorAll('#chart svg g path[fill=none]').length;
}
document.title = JSON.stringify({ seen, lines, failures, bands: document.querySelectorAll('#chart svg path[opacity]').length });
</script>"""


# What a reader with a dark screen sees.
DARK_PROBE = """<script>
const css = (query, property) => [...document.querySelectorAll(query)].map((node) => getComputedStyle(node)[property]);
document.querySelector('#legend .all').click();
const none = document.querySelectorAll('#chart svg path.line').length;
document.querySelector('#legend .all').click();
document.title = JSON.stringify({ failures, none, paper: css('body', 'backgroundColor')[0],
  lines: css('#chart svg path.line[fill=none]', 'stroke'), swatches: css('#legend path.line[d^=M-19]', 'stroke') });
</script>"""


def _in_chromium(page, folder, *more_flags):
  """Opens the page in Chromium; returns the JSON that PROBE has put into its title."""
  flags = '--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking'.split()
  flags += ['--disable-component-update', '--disable-sync', '--window-size=1200,2400']
  command = [
    'chromium',
    *flags,
    *more_flags,
    f'--user-data-dir={folder / "profile"}',
    '--dump-dom',
    page.resolve().as_uri(),
  ]
  dom = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT, check=True).stdout
  return json.loads(html.unescape(re.search('<title>(.*?)</title>', dom).group(1)))


def _add_scripts(page, probe):
  sources = ' '.join(csp_source(re.search('>(.*)<', script, re.S).group(1)) for script in (WATCH, probe))
  text = page.read_text().replace('script-src ', f'script-src {sources} ')
  # The policy counts from its element on, so that the first of the scripts would run without its hash.
  page.write_text(text.replace('<title>', WATCH + '<title>').replace('</body>', probe + '</body>'))


needs_chromium = pytest.mark.skipif(not shutil.which('chromium'), reason='chromium is not installed')


@needs_chromium
@pytest.mark.parametrize('dark', [False, True])
def test_colours_on_light_and_dark_screens(lenet, tmp_path, dark):
  page = report.write_report(lenet, output=tmp_path)['report']
  _add_scripts(page, DARK_PROBE)
  found = _in_chromium(page, tmp_path, f'--blink-settings=preferredColorScheme={0 if dark else 1}')
  colours = [style.look(algorithm).color for algorithm in ('s_sgd', 'easgd', 'vrl_sgd')]
  expected = [_rgb(style.on_dark(colour) if dark else colour) for colour in colours]
  assert found['failures'] == [] and found['none'] == 0
  assert found['paper'] == ('rgb(21, 24, 27)' if dark else 'rgb(255, 255, 255)')
  assert found['lines'] == found['swatches'] and set(expected) < set(found['lines']) and len(found['lines']) == 5


def _rgb(colour):
  return 'rgb({}, {}, {})'.format(*(int(colour[i : i + 2], 16) for i in (1, 3, 5)))


@needs_chromium
def test_controls_in_a_browser(lenet, tmp_path):
  page = report.write_report(lenet, output=tmp_path)['report']
  _add_scripts(page, PROBE)
  found = _in_chromium(page, tmp_path)
  assert found['failures'] == []
  assert found['seen'][:3] == [
    'epochs/train loss#5',
    'bytes sent per worker/test accuracy (%)#5',
    'bytes sent per worker/consensus distance#4',
  ]
  first, second = found['seen'][3:]
  assert first.startswith('bytes sent') and second.startswith('bytes sent') and first != second
  metrics = ('train_loss', 'test_accuracy', 'consensus_distance', 'variance_among_workers')
  axes = ('epoch', 'communications', 'bytes_communicated', 'seconds')
  assert all(found['lines'][f'{y} {x}'] >= 4 for y in metrics for x in axes)
  assert found['bands'] == 3  # the algorithms with three seeds, except the first in the legend, which is hidden
