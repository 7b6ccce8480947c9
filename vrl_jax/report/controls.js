'use strict';
// The controls of the page, the legend and the tooltip.

const data = JSON.parse(document.getElementById('data').textContent);
const chart = document.getElementById('chart'), tip = document.getElementById('tip');
const hidden = new Set();
let drawn = null, cursor = null;

function node(name, attributes, text) {
  const created = document.createElement(name);
  for (const key in attributes) created.setAttribute(key, attributes[key]);
  if (text !== undefined) created.textContent = text;
  return created;
}

// Radio buttons: the browser implements the arrow keys and tells screen readers.
function choice(name, legend, options) {
  const field = node('fieldset', {}), row = node('div', { class: 'choice' });
  field.append(node('legend', {}, legend), row);
  options.forEach((option, i) => {
    const label = node('label', option.about ? { title: option.about } : {}), input = node('input', { type: 'radio', name, value: option.key });
    input.checked = i === 0;
    label.append(input, node('span', {}, option.label));
    row.append(label);
  });
  if (options.length > 1) document.getElementById('controls').append(field);
  field.addEventListener('change', () => { if (name === 'y' || name === 'x') setDefaultScale(name); draw(); });
  return {
    get: () => (row.querySelector('input:checked') || {}).value,
    set: (value) => row.querySelectorAll('input').forEach((input) => { input.checked = input.value === value; }),
  };
}

const scales = [{ key: 'log', label: 'log' }, { key: 'linear', label: 'linear' }];
const pick = { y: choice('y', 'y axis', data.metrics), x: choice('x', 'x axis', data.axes) };
data.facets.forEach((facet, i) => { pick['f' + i] = choice('f' + i, facet.label, facet.values); });
pick.logY = choice('logY', 'y scale', scales);
pick.logX = choice('logX', 'x scale', scales);

function selectedLines() {
  const values = data.facets.map((_, i) => pick['f' + i].get());
  const matching = data.lines.filter((l) => !l.facet_values || l.facet_values.every((v, i) => v === null || v === values[i]));
  // S-SGD matches every period: if it ran once per period, show one of its runs.
  return matching.filter((l, i) => matching.findIndex((other) => other.label === l.label) === i);
}

function setDefaultScale(name) {
  if (name === 'y') return pick.logY.set(data.metrics.find((m) => m.key === pick.y.get()).log ? 'log' : 'linear');
  const ends = data.lines.filter((l) => !l.published).map((l) => {
    const metric = l.y[pick.y.get()], xs = metric && metric.x[pick.x.get()];
    return xs && xs.length ? xs[xs.length - 1] : 0;
  }).filter((v) => v > 0);
  const counts = ['communications', 'bytes_communicated'].includes(pick.x.get());
  pick.logX.set(counts && Math.max(...ends) > 4 * Math.min(...ends) ? 'log' : 'linear');
}

function draw() {
  const y = pick.y.get(), x = pick.x.get(), lines = selectedLines();
  const yLabel = data.metrics.find((m) => m.key === y).label, xLabel = data.axes.find((a) => a.key === x).label;
  const shown = lines.filter((l) => !hidden.has(l.label));
  const label = `Line chart: ${yLabel} against ${xLabel}, ${shown.map((l) => l.label).join(', ')}. The final metrics are in the table below.`;
  drawn = drawChart(chart, { lines: shown, x, y, xLabel, yLabel, label, logX: pick.logX.get() === 'log', logY: pick.logY.get() === 'log' });
  cursor = null;
  tip.hidden = true;
  legend(lines, x, y);
}

function legend(lines, x, y) {
  const list = document.getElementById('legend');
  const focused = document.activeElement && document.activeElement.dataset ? document.activeElement.dataset.line : null;
  list.replaceChildren(...lines.filter((l) => l.y[y] && l.y[y].x[x]).map((line) => {
    const button = node('button', { type: 'button', 'aria-pressed': String(!hidden.has(line.label)), 'data-line': line.label, title: 'show or hide' });
    const swatch = element('svg', { width: 38, height: 12, viewBox: '-19 -6 38 12', 'aria-hidden': 'true' });
    const stroke = line.published ? 1.2 : 2.2;
    element('path', { d: 'M-19 0H19', class: 'line', 'stroke-width': stroke, 'stroke-dasharray': line.dashes.map((d) => d * stroke).join(' ') || 'none' }, swatch, line);
    if (line.marker) element('path', { d: MARKERS[line.marker], class: 'line marker', 'stroke-width': 1.5 }, swatch, line);
    const zero = line.y[y].mean.every((v) => v === 0);
    const notes = [line.seeds > 1 ? `${line.seeds} seeds` : '', line.diverged ? 'diverged' : '', zero ? '0 throughout' : ''].filter(Boolean);
    button.append(swatch, line.label + (notes.length ? ` (${notes.join(', ')})` : ''));
    button.addEventListener('click', () => { hidden.has(line.label) ? hidden.delete(line.label) : hidden.add(line.label); draw(); });
    const item = node('li', {});
    item.append(button);
    return item;
  }));
  if (list.children.length > 1) list.append(allLines(lines));
  if (focused) [...list.querySelectorAll('button')].filter((b) => b.dataset.line === focused).forEach((b) => b.focus());
}

// A button that hides all lines, so that a few can be chosen, or shows all again.
function allLines(lines) {
  const hide = !lines.some((l) => hidden.has(l.label));
  const item = node('li', {}), button = node('button', { type: 'button', class: 'all', 'data-line': '' }, hide ? 'hide all' : 'show all');
  button.addEventListener('click', () => {
    hidden.clear();
    if (hide) lines.forEach((l) => hidden.add(l.label));
    draw();
  });
  item.append(button);
  return item;
}

// Shows the values of all lines at the log points nearest to a horizontal position in the chart.
function readAt(at) {
  if (!drawn || !drawn.area) return;
  const axis = pick.x.get(), rows = [];
  for (const { line, points } of drawn.series) {
    const near = points.reduce((best, p) => (Math.abs(drawn.atX(p.x) - at) < Math.abs(drawn.atX(best.x) - at) ? p : best));
    if (Math.abs(drawn.atX(near.x) - at) < 40) rows.push({ line, near });
  }
  if (!rows.length) return;
  cursor = at;
  rows.sort((a, b) => b.near.mean - a.near.mean);
  const main = rows.reduce((a, b) => (Math.abs(drawn.atX(a.near.x) - at) <= Math.abs(drawn.atX(b.near.x) - at) ? a : b)).near;
  const table = node('table', {});
  for (const { line, near } of rows) {
    const row = node('tr', {}), mark = node('span', { class: 'mark', 'aria-hidden': 'true' }, '● ');
    paint(mark, line);
    const spread = line.seeds > 1 ? ` (${format(near.low)} – ${format(near.high)})` : '';
    const name = node('td', {});
    name.append(mark, line.label);
    row.append(name, node('td', {}, format(near.mean) + spread));
    table.append(row);
  }
  tip.replaceChildren(node('strong', {}, `${data.axes.find((a) => a.key === axis).label}: ${format(main.x, axis)}`), table);
  tip.hidden = false;
  const left = drawn.atX(main.x) * (chart.clientWidth / drawn.width);
  tip.style.top = '8px';
  tip.style.left = left + 14 + tip.offsetWidth > chart.clientWidth ? Math.max(0, left - 14 - tip.offsetWidth) + 'px' : left + 14 + 'px';
  for (const [key, value] of [['x1', drawn.atX(main.x)], ['x2', drawn.atX(main.x)], ['visibility', 'visible']]) drawn.cursor.setAttribute(key, value);
}

function hideTip() {
  tip.hidden = true;
  if (drawn && drawn.cursor) drawn.cursor.setAttribute('visibility', 'hidden');
}

chart.addEventListener('pointermove', (event) => {
  const box = chart.getBoundingClientRect();
  if (drawn && drawn.width) readAt((event.clientX - box.left) * (drawn.width / box.width));
});
chart.addEventListener('pointerleave', hideTip);
chart.addEventListener('blur', hideTip);
chart.addEventListener('keydown', (event) => {
  if (event.key === 'Escape') hideTip();
  if (!['ArrowLeft', 'ArrowRight'].includes(event.key) || !drawn || !drawn.area) return;
  event.preventDefault();
  const { left, right } = drawn.area, step = (right - left) / 60, forward = event.key === 'ArrowRight';
  const all = drawn.series.flatMap((s) => s.points.map((p) => drawn.atX(p.x)));
  const ahead = all.filter((at) => cursor === null || (forward ? at >= cursor + step : at <= cursor - step));
  if (ahead.length) readAt(ahead.reduce((a, b) => (forward ? Math.min(a, b) : Math.max(a, b))));
});
addEventListener('beforeprint', () => document.querySelectorAll('details').forEach((part) => { part.open = true; }));
let width = 0;
new ResizeObserver(() => { if (chart.clientWidth !== width) { width = chart.clientWidth; draw(); } }).observe(chart);
if (data.metrics.length && data.axes.length) {
  if (data.first.y) { pick.y.set(data.first.y); pick.x.set(data.first.x); }
  setDefaultScale('y');
  setDefaultScale('x');
  draw();
}
