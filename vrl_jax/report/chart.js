'use strict';
// Draws lines into an SVG: drawChart(box, {lines, x, y, xLabel, yLabel, label, logX, logY}) returns the scales and points for the tooltip.

const SVG = 'http://www.w3.org/2000/svg';
const MARKERS = {
  o: 'M-3.5 0a3.5 3.5 0 1 0 7 0a3.5 3.5 0 1 0-7 0z', s: 'M-3-3h6v6h-6z', D: 'M0-4.2L4.2 0L0 4.2L-4.2 0z',
  '^': 'M0-4L4 3.4H-4z', v: 'M0 4L4-3.4H-4z', '<': 'M-4 0L3.4-4V4z', '>': 'M4 0L-3.4-4V4z',
  P: 'M-1.3-4h2.6v2.7h2.7v2.6h-2.7v2.7h-2.6v-2.7h-2.7v-2.6h2.7z', X: 'M-4-2.4L-2.4-4L0-1.6L2.4-4L4-2.4L1.6 0L4 2.4L2.4 4L0 1.6L-2.4 4L-4 2.4L-1.6 0z',
  p: 'M0-4L3.8-1.2L2.4 3.3H-2.4L-3.8-1.2z', h: 'M0-4L3.5-2V2L0 4L-3.5 2V-2z', '*': 'M0-4.5L1.2-1.4L4.4-1.4L1.9.6L2.8 3.8L0 2L-2.8 3.8L-1.9.6L-4.4-1.4L-1.2-1.4z',
};
const LOG_FLOOR = 1e-16;

function element(name, attributes, parent, line) {
  const node = document.createElementNS(SVG, name);
  for (const key in attributes) node.setAttribute(key, attributes[key]);
  if (line) paint(node, line);
  if (parent) parent.appendChild(node);
  return node;
}

// The style sheet takes one of the two colours; a style attribute would violate the content security policy.
function paint(node, line) {
  node.style.setProperty('--light', line.color);
  node.style.setProperty('--dark', line.dark);
}

function bytes(value) {
  for (const unit of ['B', 'kB', 'MB', 'GB', 'TB']) {
    if (Math.abs(value) < 999.5 || unit === 'TB') return Number(value.toPrecision(3)) + ' ' + unit;
    value /= 1000;
  }
}

function format(value, axis) {
  if (axis === 'bytes_communicated') return bytes(value);
  if (value === 0) return '0';
  const size = Math.abs(value);
  if (size >= 1e6 || size < 1e-3) return value.toExponential(2).replace(/\.?0+e/, 'e').replace('e+', 'e');
  return size >= 1000 ? Math.round(value).toLocaleString('en') : String(Number(value.toPrecision(4)));
}

function ticks(low, high, log, room) {
  if (!log) {
    const rough = (high - low) / room, power = 10 ** Math.floor(Math.log10(rough));
    const step = power * [1, 2, 2.5, 5, 10].find((m) => m * power >= rough);
    const out = [];
    for (let i = Math.ceil(low / step - 1e-9); i * step <= high * (1 + 1e-12) + 1e-300; i++) out.push(i * step);
    return out;
  }
  const first = Math.floor(Math.log10(low)), last = Math.ceil(Math.log10(high)), decades = Math.log10(high / low);
  const parts = decades < 0.5 ? [1, 1.5, 2, 3, 4, 5, 6, 7, 8, 9] : decades < 2.5 ? [1, 2, 5] : [1];
  const skip = Math.max(1, Math.ceil(decades / room)), out = [];
  for (let e = first; e <= last; e++) {
    if (decades >= 2.5 && (((e - last) % skip) + skip) % skip) continue;
    for (const part of parts) if (part * 10 ** e >= low * 0.999 && part * 10 ** e <= high * 1.001) out.push(part * 10 ** e);
  }
  return out.length > 1 ? out : [low, high];
}

// A log axis cannot show zeros: leading ones are skipped, and a line that falls to zero ends at the bottom of the chart.
function points(line, x, y, logX, logY) {
  const data = line.y[y], xs = data && data.x[x], out = [];
  if (!xs) return out;
  for (let i = 0; i < xs.length; i++) {
    const mean = data.mean[i];
    if (mean === null || xs[i] === null || (logX && xs[i] <= 0)) continue;
    if (logY && mean <= 0 && !out.length) continue;
    out.push({ x: xs[i], mean, low: data.low ? data.low[i] : mean, high: data.high ? data.high[i] : mean });
  }
  return out;
}

function ranges(series, logY) {
  const runs = series.filter((s) => !s.line.published && s.points.length);
  const xs = runs.flatMap((s) => s.points.map((p) => p.x));
  let left = Math.min(...xs), right = Math.max(...xs);
  if (left === right) { left -= Math.abs(left) * 0.1 || 1; right += Math.abs(right) * 0.1 || 1; }
  const stable = runs.filter((s) => !s.line.diverged);
  const counted = (stable.length ? stable : runs).concat(series.filter((s) => s.line.published));
  const ys = counted.flatMap((s) => s.points.filter((p) => p.x <= right).flatMap((p) => [p.low, p.high]));
  const drawable = ys.filter((v) => !logY || v > 0);
  let bottom = Math.min(...drawable), top = Math.max(...drawable);
  if (logY) {
    bottom = Math.max(bottom, LOG_FLOOR); top = Math.max(top, bottom);
    const margin = Math.max((top / bottom) ** 0.05, 1.1);
    return { left, right, bottom: bottom / margin, top: top * margin };
  }
  const margin = (top - bottom) * 0.05 || Math.abs(top) * 0.05 || 1;
  return { left, right, bottom: bottom - margin, top: top + margin };
}

function drawChart(box, options) {
  const { x, y, logX, logY } = options;
  const series = options.lines.map((line) => ({ line, points: points(line, x, y, logX, logY) }));
  const width = Math.max(300, box.clientWidth), height = Math.round(Math.min(480, Math.max(280, width * 0.5)));
  const svg = element('svg', { viewBox: `0 0 ${width} ${height}`, role: 'img', 'aria-label': options.label });
  box.querySelectorAll('svg').forEach((old) => old.remove());
  box.prepend(svg);
  if (!series.some((s) => s.points.length && !s.line.published)) {
    element('text', { x: width / 2, y: height / 2, 'text-anchor': 'middle', class: 'name' }, svg).textContent = options.lines.length ? 'no data for these axes' : 'all lines are hidden';
    return { series: [], area: null };
  }
  const area = { left: 74, right: width - 14, top: 12, bottom: height - 46 };
  const range = ranges(series, logY);
  const scale = (low, high, from, to, log) => {
    const f = log ? Math.log10 : Number, a = f(low), b = f(high);
    return (v) => from + ((f(Math.min(Math.max(v, low), high)) - a) / (b - a)) * (to - from);
  };
  const atX = scale(range.left, range.right, area.left, area.right, logX);
  const inside = scale(range.bottom, range.top, area.bottom, area.top, logY);
  const atY = (v) => (v > range.top ? area.top - 20 : v < range.bottom && !logY ? area.bottom + 20 : inside(v));

  for (const value of ticks(range.left, range.right, logX, width / 90)) {
    const at = atX(value);
    element('line', { x1: at, x2: at, y1: area.top, y2: area.bottom, class: 'grid' }, svg);
    element('text', { x: at, y: area.bottom + 17, 'text-anchor': 'middle', class: 'tick' }, svg).textContent = format(value, x);
  }
  for (const value of ticks(range.bottom, range.top, logY, height / 60)) {
    const at = inside(value);
    element('line', { x1: area.left, x2: area.right, y1: at, y2: at, class: 'grid' }, svg);
    element('text', { x: area.left - 8, y: at + 4, 'text-anchor': 'end', class: 'tick' }, svg).textContent = format(value, y);
  }
  element('path', { d: `M${area.left} ${area.top}V${area.bottom}H${area.right}`, fill: 'none', class: 'axis' }, svg);
  element('text', { x: (area.left + area.right) / 2, y: height - 8, 'text-anchor': 'middle', class: 'name' }, svg).textContent = options.xLabel;
  element('text', { transform: `translate(15 ${(area.top + area.bottom) / 2}) rotate(-90)`, 'text-anchor': 'middle', class: 'name' }, svg).textContent = options.yLabel;

  const clip = element('clipPath', { id: 'area' }, svg);
  element('rect', { x: area.left - 6, y: area.top - 6, width: area.right - area.left + 12, height: area.bottom - area.top + 12 }, clip);
  const inner = element('g', { 'clip-path': 'url(#area)' }, svg);
  series.forEach((s, order) => drawLine(inner, s, range, atX, atY, order / series.length));
  const cursor = element('line', { y1: area.top, y2: area.bottom, class: 'cursor', visibility: 'hidden' }, svg);
  return { series: series.filter((s) => s.points.length), atX, area, width, cursor, svg };
}

function drawLine(parent, { line, points }, range, atX, atY, phase) {
  const seen = points.filter((p) => p.x <= range.right);
  if (!seen.length) return;
  const path = (key) => seen.map((p, i) => `${i ? 'L' : 'M'}${atX(p.x).toFixed(1)} ${atY(p[key]).toFixed(1)}`);
  if (line.seeds > 1) {
    const back = path('low').reverse().map((part) => part.replace('M', 'L'));
    element('path', { d: path('high').concat(back).join('') + 'z', class: 'band', opacity: 0.16 }, parent, line);
  }
  const stroke = line.published ? 1.2 : 2.2;
  const dashes = line.dashes.map((d) => d * stroke).join(' ');
  element('path', { d: path('mean').join(''), fill: 'none', class: 'line', 'stroke-width': stroke, 'stroke-dasharray': dashes || 'none', 'stroke-linejoin': 'round' }, parent, line);
  const stride = Math.max(1, Math.ceil(seen.length / 9));
  for (let i = Math.floor(phase * stride); line.marker && i < seen.length; i += stride) {
    const at = `translate(${atX(seen[i].x).toFixed(1)} ${atY(seen[i].mean).toFixed(1)})`;
    element('path', { d: MARKERS[line.marker], transform: at, class: 'line marker', 'stroke-width': 1.5 }, parent, line);
  }
  if (!line.diverged) return;
  // A cross where the line leaves the chart, or at its end.
  const out = seen.findIndex((p) => p.mean > range.top || p.mean < range.bottom), end = seen[seen.length - 1];
  let x = atX(end.x), y = atY(end.mean);
  if (out >= 0) {
    const [a, b] = [seen[Math.max(0, out - 1)], seen[out]], drop = atY(a.mean) - atY(b.mean);
    y = atY(b.mean > range.top ? range.top : range.bottom);
    x = drop ? atX(a.x) + ((atX(b.x) - atX(a.x)) * (atY(a.mean) - y)) / drop : atX(b.x);
  }
  element('path', { d: 'M-5-5L5 5M-5 5L5-5', transform: `translate(${x} ${y})`, class: 'line', 'stroke-width': 2.5 }, parent, line);
}
