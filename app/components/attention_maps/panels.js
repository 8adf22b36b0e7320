/* One map with all that stands around it, through either pen, and all maps as one exported figure. `view` is the
 * MapView; `place` says where tokens stand: the map's left edge, CSS pixels of a row and of a column, and from tokens
 * to pixels across and down. */

function drawPanel(pen, view, panel, ratio) {
  const { colour, unit, selected, marked } = view.header;
  const { side, span, wide, x0, y0, sheet } = view;
  const left = view.lefts[panel.side], high = side / span, broad = side / wide;
  const place = { left, high, broad, across: (j) => left + (j - x0) * broad, down: (i) => TOP + (i - y0) * high };
  const table = view.tables[panel.diverging ? 'diverging' : 'sequential'];
  pen.text(panel.title, left, 13, { size: 13, weight: 600 });
  drawBar(pen, { x: left, y: 24, width: side, table, ceiling: panel.ceiling, colour, diverging: panel.diverging,
    title: panel.diverging ? 'difference' : unit });
  const { canvas, painted, factors } = sheet.picture({ ...panel, colour, table }, high * ratio, broad * ratio);
  view.factors = factors;
  const seen = [(x0 - sheet.left) / factors[1], (y0 - sheet.top) / factors[0], wide / factors[1], span / factors[0]];
  pen.image(canvas, seen, left, TOP, side, side);
  if (view.header.causal) drawDiagonal(pen, view, place);
  const right = left + side, floor = TOP + side;
  pen.line([[left, TOP], [right, TOP], [right, floor], [left, floor], [left, TOP]], pen.theme.border);
  drawExpected(pen, view, place);
  drawAxes(pen, view, place);
  drawEntropy(pen, view, panel, place);
  marked.forEach((t) => drawMark(pen, view, t, place, MARK));
  if (selected !== null) drawMark(pen, view, selected, place, pen.theme.accent);
  const inside = (i, j) => i + 1 > y0 && i < y0 + span && j + 1 > x0 && j < x0 + wide;
  if (view.cursor && inside(...view.cursor)) drawCursor(pen, view, ...view.cursor, place);
  return painted;
}

/* Rings around the cells that the grammar calls for, where cells are large enough for them. */
function drawExpected(pen, { header, side }, { left, high, broad, across, down }) {
  const cell = Math.min(high, broad);
  for (const [i, j] of cell >= 3 ? header.expected : []) {
    const [x, y] = [across(j + 0.5), down(i + 0.5)], radius = Math.min(6, Math.max(2, cell * 0.32));
    if (x < left || x > left + side || y < TOP || y > TOP + side) continue;
    pen.ring(x, y, radius, '#000000', 2.4); // dark under light: visible on every colour
    pen.ring(x, y, radius, '#ffffff', 1.2);
  }
}

/* The staircase between what a causal row may see and the future, which has the page's colour. */
function drawDiagonal(pen, view, { across, down }) {
  const from = Math.max(view.x0, view.y0), to = Math.min(view.x0, view.y0) + view.span;
  const edge = [], step = Math.max(1, Math.floor((2 * view.span) / view.side)); // no step is finer than two pixels
  for (let t = Math.floor(from); t < to; t += step) edge.push([t, t], [Math.min(t + step, Math.ceil(to)), t]);
  if (Math.ceil(to) < view.header.tokens.length) edge.push([Math.ceil(to), to]);
  const clamp = (value, low) => Math.min(low + view.span, Math.max(low, value));
  if (edge.length > 1) pen.line(edge.map(([j, i]) => [across(clamp(j, view.x0)), down(clamp(i, view.y0))]), pen.theme.border);
}

function drawAxes(pen, view, { left, high, broad, across, down }) {
  const { tokens, numbers, keys, key_numbers: keyNumbers, selected, square } = view.header;
  const named = left > BARE;
  const ticks = (cell, texts, places, start, span, chosen) => {
    const step = cell >= LABELS_FROM ? 1 : niceStep(34 / cell);
    const first = Math.max(0, Math.ceil(start - 0.5)), last = Math.min(texts.length - 1, Math.floor(start + span - 0.5));
    const shown = [];
    for (let t = Math.ceil(first / step) * step; t <= last; t += step) {
      shown.push({ t, text: cell >= LABELS_FROM ? label(texts[t]) : String(places[t]),
        style: { size: cell >= LABELS_FROM ? Math.min(11, cell) : 10, align: 'right',
          ...(t === chosen ? { weight: 700, fill: pen.theme.accent } : {}) } });
    }
    return shown;
  };
  for (const { t, text, style } of named ? ticks(high, tokens, numbers, view.y0, view.span, selected) : []) {
    pen.text(text, left - 5, down(t + 0.5) + 3.5, style);
  }
  for (const { t, text, style } of ticks(broad, keys, keyNumbers, view.x0, view.wide, square ? selected : null)) {
    pen.text(text, across(t + 0.5) + 3.5, TOP + view.side + 6, { ...style, turn: -90 });
  }
  const middle = view.side / 2;
  pen.text('key j (token)', left + middle, TOP + view.side + view.bottom - 6, { align: 'center', opacity: 0.75 });
  if (named) pen.text('query i (token)', 11, TOP + middle, { align: 'center', turn: -90, opacity: 0.75 });
}

/* Entropy of each row as a curve beside the map, on the map's own rows. */
function drawEntropy(pen, view, panel, place) {
  const { down } = place, left = place.left + view.side + 8, width = STRIP - 20;
  const ceiling = view.header.entropy_scale[panel.diverging ? 1 : 0];
  const zero = panel.diverging ? left + width / 2 : left;
  const scale = (panel.diverging ? width / 2 : width) / (ceiling || 1);
  const points = [], bottom = TOP + view.side, rows = Math.max(1, Math.floor(view.span / view.side));
  const last = Math.min(panel.entropy.length, Math.ceil(view.y0 + view.span));
  for (let i = Math.floor(view.y0 / rows) * rows; i < last; i += rows) { // of the rows of one pixel the least and the largest
    const several = panel.entropy.slice(i, i + rows).filter((value) => value !== null);
    if (!several.length) continue;
    const ends = rows > 1 ? [Math.min(...several), Math.max(...several)] : [several[0], several[0]];
    points.push([zero + ends[0] * scale, Math.max(TOP, down(i))], [zero + ends[1] * scale, Math.min(bottom, down(i + rows))]);
  }
  if (points.length) {
    const closed = [[zero, points[0][1]], ...points, [zero, points.at(-1)[1]]];
    pen.line(closed, null, 1, panel.diverging ? '#009e7333' : '#0072b233');
    pen.line(points, panel.diverging ? '#009e73' : '#0072b2', 1.2);
  }
  pen.line([[zero, TOP], [zero, TOP + view.side]], pen.theme.border);
  const tick = { size: 9 }, at = TOP + view.side + 12; // clear of the last key's label, which ends at the map's edge
  if (panel.diverging) pen.text(`\u00b1${short(ceiling)}`, zero, at, { ...tick, align: 'center' });
  else {
    pen.text('0', left + 1, at, tick);
    pen.text(short(ceiling), left + width + 4, at, { ...tick, align: 'right' });
  }
  pen.text(panel.diverging ? '\u0394 entropy' : 'entropy', left + 1, at + 13, { ...tick, opacity: 0.75 });
  pen.text('(nats)', left + 1, at + 24, { ...tick, opacity: 0.75 });
}

/* Small triangles at the row and column of the selected token, and of each that is marked. */
function drawMark(pen, view, t, { left, across, down }, colour) {
  const y = down(t + 0.5), x = view.header.square ? across(t + 0.5) : -1, { side } = view;
  if (y >= TOP && y <= TOP + side) pen.line([[left - 5, y - 4], [left, y], [left - 5, y + 4]], null, 1, colour);
  if (x >= left && x <= left + side) {
    pen.line([[x - 4, TOP + side + 5], [x, TOP + side], [x + 4, TOP + side + 5]], null, 1, colour);
  }
}

function drawCursor(pen, view, i, j, { left, high, broad, across, down }) {
  const { tokens, keys } = view.header, { side } = view, bottom = TOP + side, right = left + side;
  const clip = (value, low, high) => Math.min(high, Math.max(low, value));
  const [y, y2] = [down(i), down(i + 1)].map((value) => clip(value, TOP, bottom));
  const [x, x2] = [across(j), across(j + 1)].map((value) => clip(value, left, right));
  for (const level of [y, y2]) pen.line([[left, level], [right, level]], VERMILION, 0.8);
  for (const level of [x, x2]) pen.line([[level, TOP], [level, bottom]], VERMILION, 0.8);
  const chip = (text, cx, cy, turn) => pen.text(text, cx, cy, { align: 'right', weight: 700, fill: VERMILION, turn });
  const tall = Math.max(23, high), size = Math.max(23, broad); // cover the tick labels that they would cross
  if (left > BARE) {
    pen.rect(16, (y + y2) / 2 - tall / 2, left - 19, tall, pen.theme.background);
    chip(label(tokens[i]), left - 5, (y + y2) / 2 + 3.5, 0);
  }
  pen.rect((x + x2) / 2 - size / 2, bottom + 3, size, view.bottom - 22, pen.theme.background);
  chip(label(keys[j]), (x + x2) / 2 + 3.5, bottom + 6, -90);
}

function niceStep(least) {
  const power = 10 ** Math.floor(Math.log10(Math.max(1, least)));
  return [1, 2, 5, 10].map((digit) => digit * power).find((step) => step >= least);
}

/* Heading, the three panels beside or below each other, and what the legend says. */
function exportPanels(view, kind, theme, stacked) {
  const panel = TOP + view.side + view.bottom + (stacked ? GAP : 0);
  const several = view.panels.length;
  const along = (count) => view.widths.slice(0, count).reduce((sum, each) => sum + each + GAP, 0);
  const width = kind === 'column' ? COLUMN : stacked ? view.widths[0] : along(several) - GAP;
  const { heading, note, name } = view.header;
  const notes = [...view.legend, reduced(view), ...(kind === 'png' ? [] : ['cells are an embedded raster, text and curves are vectors'])];
  const titles = inLines(note ? `${heading} \u2014 ${note}` : heading, width - 8, 13, 600, theme);
  const foot = inLines(notes.filter(Boolean).join(' \u00b7 '), width - 8, 11, 400, theme);
  const top = 10 + 17 * titles.length, floor = top + panel * (stacked ? several : 1);
  exportFigure(kind, width, floor + 8 + 15 * foot.length, theme, (pen) => {
    titles.forEach((line, at) => pen.text(line, 4, 16 + 17 * at, { size: 13, weight: 600 }));
    view.panels.forEach((one, side) => {
      pen.origin(...(stacked ? [0, top + side * panel] : [along(side), top]));
      drawPanel(pen, view, one, 3);
    });
    pen.origin(0, floor);
    foot.forEach((line, at) => pen.text(line, 4, 14 + 15 * at, { size: 11, opacity: 0.75 }));
  }, name);
}
