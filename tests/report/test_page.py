"""The HTML page: its content, the command that writes it, and its controls in a real browser."""

import base64
import hashlib
import html
import json
import re
import shutil
import subprocess

import pytest
from support.report_samples import lenet as lenet
from support.report_samples import write_csv, write_run

from vrl_jax import report
from vrl_jax.report import __main__ as cli


def test_content(lenet, tmp_path):
  csv_file = write_csv(tmp_path / 'non_identical_local_sgd.csv')
  written = report.write_report(lenet, reference=[csv_file], title='A & B', output=tmp_path / 'out')
  assert list(written) == ['report', 'loss', 'accuracy', 'consensus', 'variance']
  assert all(path.exists() for path in written.values())
  page = written['report'].read_text()
  assert '<h1>A &amp; B</h1>' in page and '<strong>' in page and 'worker 7' in page and '32 examples dropped' in page
  assert not re.search(r'(src|href)="(?!data:)', page) and '@import' not in page
  data = json.loads(re.search(r'id="data">(.*?)</script>', page, re.S).group(1))
  assert [line['label'] for line in data['lines']][-1] == 'Local SGD (published)'
  assert {axis['key'] for axis in data['axes']} >= {'epoch', 'communications', 'bytes_communicated', 'seconds'}
  assert data['lines'][0]['seeds'] == 3 and len(data['lines'][0]['y']['test_accuracy']['mean']) == 16


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


def _in_chromium(page, folder):
  """Opens the page in Chromium; returns the JSON that PROBE has put into its title."""
  flags = '--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking'.split()
  flags += ['--disable-component-update', '--disable-sync', '--window-size=1200,2400']
  command = ['chromium', *flags, f'--user-data-dir={folder / "profile"}', '--dump-dom', page.resolve().as_uri()]
  dom = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout
  return json.loads(html.unescape(re.search('<title>(.*?)</title>', dom).group(1)))


@pytest.mark.skipif(not shutil.which('chromium'), reason='chromium is not installed')
def test_controls_in_a_browser(lenet, tmp_path):
  page = report.write_report(lenet, output=tmp_path)['report']
  sources = ' '.join(csp_source(re.search('>(.*)<', script, re.S).group(1)) for script in (WATCH, PROBE))
  text = page.read_text().replace('script-src ', f'script-src {sources} ')
  # The policy counts from its element on, so that the first of the scripts would run without its hash.
  text = text.replace('<title>', WATCH + '<title>').replace('</body>', PROBE + '</body>')
  page.write_text(text)
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
