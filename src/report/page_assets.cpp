#include "report/page_assets.h"

namespace seqfuse::report {

const char* const kStyle = R"css(
:root { color-scheme: light dark; --paper: #fff; --ink: #1b1f24; --soft: #57606a; --rule: #d8dee4;
  --grid: #e8ecf0; --raised: #f6f8fa; --c0: #0072b2; --c1: #d55e00; --c2: #009e73; --c3: #cc79a7;
  --c4: #e69f00; --c5: #56b4e9; }
@media (prefers-color-scheme: dark) { :root { --paper: #14171b; --ink: #e6e9ed; --soft: #9aa4af;
  --rule: #363d45; --grid: #262c33; --raised: #1d2228; --c0: #56b4e9; --c1: #e69f00; --c2: #00b98a;
  --c3: #e08fbe; --c4: #f0e442; --c5: #ff7a2f; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 1240px; padding: 20px; background: var(--paper); color: var(--ink);
  font: 15px/1.5 system-ui, "Segoe UI", Roboto, "Liberation Sans", sans-serif; }
h1 { font-size: 24px; margin: 0 0 4px; overflow-wrap: anywhere; }
h2 { font-size: 19px; margin: 32px 0 10px; padding-bottom: 4px; border-bottom: 1px solid var(--rule); }
h3 { font-size: 16px; margin: 20px 0 8px; overflow-wrap: anywhere; }
p { margin: 6px 0; overflow-wrap: anywhere; }
.note { color: var(--soft); }
code, pre, .code { font-family: ui-monospace, "DejaVu Sans Mono", monospace; font-size: 13px; }
pre { padding: 12px; background: var(--raised); border-radius: 6px; overflow-x: auto; }
summary { cursor: pointer; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { padding: 5px 14px 5px 0; border-bottom: 1px solid var(--rule); text-align: right;
  white-space: nowrap; vertical-align: top; }
th { font-weight: 600; }
th:first-child { text-align: left; }
tr:first-child th { color: var(--soft); }
td.code { white-space: pre; text-align: left; }
td.best { font-weight: 700; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: 3px 18px; margin: 8px 0; }
dt { color: var(--soft); }
dd { margin: 0; font-variant-numeric: tabular-nums; }
.charts { display: grid; margin-top: 14px; grid-template-columns: repeat(auto-fill, minmax(min(100%, 480px), 1fr));
  gap: 22px 28px; }
.chart { position: relative; margin: 0; min-width: 0; }
figcaption { font-weight: 600; }
.chart > svg { display: block; width: 100%; height: auto; touch-action: pan-y; }
svg text { fill: var(--soft); font-size: 12.5px; }
svg text.y { text-anchor: end; }
svg text.x { text-anchor: middle; }
.grid { stroke: var(--grid); fill: none; }
.axis { stroke: var(--soft); fill: none; }
.line { fill: none; stroke-width: 2; stroke-linejoin: round; }
.dashed { stroke-dasharray: 7 4; }
.reference { fill: none; stroke: var(--soft); stroke-width: 1.5; stroke-dasharray: 3 4; }
.r1 { stroke-dasharray: 8 4; }
.r2 { stroke-dasharray: 8 3 2 3; }
.bar { fill: var(--c0); }
.line.c0 { stroke: var(--c0); } circle.c0 { fill: var(--c0); }
.line.c1 { stroke: var(--c1); } circle.c1 { fill: var(--c1); }
.line.c2 { stroke: var(--c2); } circle.c2 { fill: var(--c2); }
.line.c3 { stroke: var(--c3); } circle.c3 { fill: var(--c3); }
.line.c4 { stroke: var(--c4); } circle.c4 { fill: var(--c4); }
.line.c5 { stroke: var(--c5); } circle.c5 { fill: var(--c5); }
.cursor { stroke: var(--soft); fill: none; }
.legend { display: flex; flex-wrap: wrap; gap: 2px 18px; margin: 2px 0 0; padding: 0; list-style: none;
  font-size: 13px; }
.legend li { display: flex; align-items: center; gap: 6px; overflow-wrap: anywhere; min-width: 0; }
.key { width: 28px; height: 10px; flex: none; }
.tip { position: absolute; pointer-events: none; padding: 6px 9px; background: var(--paper);
  border: 1px solid var(--rule); border-radius: 6px; box-shadow: 0 2px 8px #0003; font-size: 13px;
  font-variant-numeric: tabular-nums; white-space: nowrap; z-index: 1; }
.tip div { display: flex; align-items: center; gap: 6px; }
@media (max-width: 600px) {
  body { padding: 14px; }
  svg text { font-size: 17px; }
  svg text.value { font-size: 14px; }
  .line { stroke-width: 3; }
  .legend { gap: 2px 14px; }
  th:first-child { min-width: 110px; }
  th:first-child, tr:first-child th { white-space: normal; overflow-wrap: break-word; }
  dl { grid-template-columns: 45% minmax(0, 1fr); }
}
)css";

const char* const kScript = R"js(
for (const figure of document.querySelectorAll('figure.chart')) {
  const svg = figure.querySelector(':scope > svg');
  const lines = svg ? [...svg.querySelectorAll('[data-points]')] : [];
  if (!lines.length) continue;
  const series = lines.map(line => ({ name: line.dataset.name, style: line.getAttribute('class'),
    points: JSON.parse(line.dataset.points) })).filter(one => one.points.length);
  const xLabel = figure.dataset.x, size = svg.viewBox.baseVal;
  const make = name => document.createElementNS('http://www.w3.org/2000/svg', name);
  const cursor = make('path');
  cursor.setAttribute('class', 'cursor');
  const tip = document.createElement('div');
  tip.className = 'tip';
  const nearest = (points, x) => points.reduce((best, point) =>
    Math.abs(point[0] - x) < Math.abs(best[0] - x) ? point : best);
  const number = value => Number(value.toPrecision(5)).toLocaleString('en', { maximumSignificantDigits: 5 });
  const row = text => tip.appendChild(document.createElement('div')).append(text);
  const show = event => {
    const box = svg.getBoundingClientRect();
    const x = (event.clientX - box.left) * size.width / box.width;
    const hits = series.map(one => ({ ...one, point: nearest(one.points, x) }));
    const at = nearest(hits.map(hit => hit.point), x);
    tip.replaceChildren();
    row(`${xLabel} ${at[2].toLocaleString('en')}`);
    for (const { name, style, point } of hits) {
      if (Math.abs(point[0] - at[0]) > 8) continue;
      const key = make('svg'), path = make('path');
      key.setAttribute('class', 'key');
      key.setAttribute('viewBox', '0 0 28 10');
      path.setAttribute('class', style);
      path.setAttribute('d', 'M1 5H27');
      key.append(path);
      const other = point[2] === at[2] ? '' : `, ${xLabel} ${point[2].toLocaleString('en')}`;
      const epoch = point[4] ? `, epoch ${point[4]}` : '';
      tip.appendChild(document.createElement('div')).append(key, `${name}: ${number(point[3])}${other}${epoch}`);
    }
    cursor.setAttribute('d', `M${at[0]} 14V250`);
    svg.append(cursor);
    figure.append(tip);
    const left = at[0] * box.width / size.width + 12;
    const room = figure.clientWidth - tip.offsetWidth;
    tip.style.left = `${Math.max(0, left > room ? Math.min(room, left - tip.offsetWidth - 24) : left)}px`;
    tip.style.top = `${box.top - figure.getBoundingClientRect().top + 16}px`;
  };
  const hide = () => { tip.remove(); cursor.remove(); };
  svg.addEventListener('pointermove', show);
  svg.addEventListener('pointerdown', show);
  svg.addEventListener('pointerleave', hide);
}
)js";

}  // namespace seqfuse::report
