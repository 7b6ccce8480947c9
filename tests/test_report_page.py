"""The page: what it holds, the command that writes it, and its switches in a real browser."""

import html
import json
import re
import shutil
import subprocess

import pytest
from report_samples import lenet as lenet
from report_samples import write_csv, write_run

from vrl_jax import report
from vrl_jax.report import __main__ as cli

PNG = b'\x89PNG'


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


# Before the page's own scripts: every complaint of theirs, and of the content security policy.
WATCH = """<script>
const complaints = [];
addEventListener('error', (event) => complaints.push(event.message));
addEventListener('securitypolicyviolation', (event) => complaints.push(event.violatedDirective));
</script>"""

# After them: what a reader would do, and what is then to be seen.
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
document.title = JSON.stringify({ seen, lines, complaints, bands: document.querySelectorAll('#chart svg path[opacity]').length });
</script>"""


def _in_chromium(page, folder):
  """The title that the page has given itself when its scripts have run."""
  flags = '--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking'.split()
  flags += ['--disable-component-update', '--disable-sync', '--window-size=1200,2400']
  command = ['chromium', *flags, f'--user-data-dir={folder / "profile"}', '--dump-dom', page.resolve().as_uri()]
  dom = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout
  return json.loads(html.unescape(re.search('<title>(.*?)</title>', dom).group(1)))


@pytest.mark.skipif(not shutil.which('chromium'), reason='chromium is not installed')
def test_the_switches_in_a_browser(lenet, tmp_path):
  page = report.write_report(lenet, output=tmp_path)['report']
  text = page.read_text().replace('<head>', '<head>' + WATCH).replace('</body>', PROBE + '</body>')
  page.write_text(text)
  found = _in_chromium(page, tmp_path)
  assert found['complaints'] == []
  assert found['seen'][:3] == [
    'epochs/train loss#5',
    'bytes sent per worker/test accuracy (%)#5',
    'bytes sent per worker/consensus distance#4',
  ]
  first, second = found['seen'][3:]
  assert first.startswith('bytes sent') and second.startswith('bytes sent') and first != second
  asked = ('train_loss', 'test_accuracy', 'consensus_distance', 'variance_among_workers')
  axes = ('epoch', 'communications', 'bytes_communicated', 'seconds')
  assert all(found['lines'][f'{y} {x}'] >= 4 for y in asked for x in axes)
  assert found['bands'] == 3  # three seeds of each algorithm; the first of the legend is hidden
