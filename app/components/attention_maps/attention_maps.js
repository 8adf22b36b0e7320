/* Two attention maps and their difference, side by side, with one zoom, one cursor and one readout.
 * Rows are queries i, columns keys j. pens.js, which stands before this file, draws and exports.
 *
 * A cell is Infinity where masked (never drawn), NaN where the model's number was not finite (drawn in MAGENTA).
 * Zoomed out, a pixel shows the maximum over its cells (largest magnitude for the difference), never a sample. */

const MARK = '#e69f00'; // of marked tokens, as on every page
const MAGENTA = [204, 121, 167];
const TOP = 72, STRIP = 54, GAP = 10; // above a map, right of it, between panels
const BARE = 12; // left of a map whose rows are named by the panel beside it
const SIDE_BY_SIDE = 700; // CSS pixels: a narrower page stacks the panels
const LARGEST = 560; // CSS pixels of a map, so that it fits a screen
const COLUMN_SIDE = 150; // of a map in a journal's column: three of them, stacked, fit a page of 9 in
const LABELS_FROM = 9; // CSS pixels a cell: below it, ticks are numbers
const STATE = new WeakMap();

class MapView {
  constructor(root) {
    this.root = root;
    this.canvases = [...root.querySelectorAll('canvas')];
    this.updates = 0;
    this.cursor = null;
    this.canvases.forEach((canvas) => this.listen(canvas));
    root.querySelectorAll('button').forEach((button) => button.addEventListener('click', () => this.press(button.name)));
    root.addEventListener('transitionend', (event) => event.target === root && this.refresh());
    this.resizing = new ResizeObserver(() => this.refresh());
    this.resizing.observe(root);
  }

  /* ---- data ---- */

  async update(data) {
    const turn = (this.turn = (this.turn ?? 0) + 1);
    const [header, rest] = unpack(data);
    header.square = header.keys.length === 0;
    if (header.square) Object.assign(header, { keys: header.tokens, key_numbers: header.numbers });
    const width = header.keys.length;
    const exactBytes = header.exact === null ? 0 : 8 * width;
    if (header.digest !== this.header?.digest) {
      const codes = await inflate(rest.subarray(exactBytes));
      if (turn !== this.turn) return; // a newer message overtook this one
      const resized = this.header?.tokens.length !== header.tokens.length || this.header.keys.length !== width;
      this.maps = decode(codes, header);
      this.exact = new Set();
      if (resized) {
        this.cursor = null;
        this.reset(header);
      }
    }
    if (exactBytes) {
      const rows = new Float32Array(rest.buffer, rest.byteOffset, exactBytes / 4);
      this.maps.forEach((map, side) => header.keys.forEach((_, j) => {
        const at = header.exact * width + j;
        if (Number.isFinite(map[at])) map[at] = rows[side * width + j];
      }));
      this.exact.add(header.exact);
    }
    this.header = header;
    this.tables = { sequential: colourTable(header.sequential), diverging: colourTable(header.diverging) };
    const difference = this.maps[1].map((right, at) => (right === Infinity ? Infinity : right - this.maps[0][at]));
    this.canvases.forEach((canvas, index) => { canvas.parentElement.hidden = header.single && index > 0; });
    this.panels = [this.maps[0], this.maps[1], difference].slice(0, header.single ? 1 : 3).map((values, side) => ({
      side, title: header.titles[side], diverging: side === 2,
      ceiling: side < 2 ? header.ceiling : header.difference_ceiling,
      entropy: header.entropy[side], levels: { '0,0': { rows: header.tokens.length, columns: width, values } }, images: {},
    }));
    this.updates += 1;
    this.describe();
    this.refresh();
  }

  describe() {
    const { heading, note, tokens, numbers, selected, marked, expected, expected_name: name, not_finite: broken } = this.header;
    this.root.querySelector('.heading span').textContent = heading;
    this.root.querySelector('.note').textContent = note;
    const parts = [];
    if (expected.length) parts.push(`\u25cb ${name}`);
    if (selected !== null) parts.push(`\u25b6 selected token: (${numbers[selected]}) ${label(tokens[selected], 24)}`);
    if (marked.length) parts.push(`\u25b6 ${marked.length} marked`);
    if (broken) parts.push(`${broken} cells are not finite, drawn in magenta`);
    this.legend = parts;
  }

  /* The level of the max-pooled pyramid whose cell is at least one device pixel each way, as an image. */
  picture(panel, pixelsPerRow, pixelsPerColumn) {
    const { rows, columns } = panel.levels['0,0'];
    const halvings = (pixels, count) => Math.min(Math.ceil(Math.log2(count)), Math.max(0, Math.ceil(-Math.log2(pixels))));
    const down = halvings(pixelsPerRow, rows), across = halvings(pixelsPerColumn, columns), name = `${down},${across}`;
    panel.images[name] ??= this.colourise(this.level(panel, down, across), panel);
    return { ...panel.images[name], factors: [2 ** down, 2 ** across] };
  }

  level(panel, down, across) {
    const by = [down >= across ? 1 : 0, across >= down ? 1 : 0];
    panel.levels[`${down},${across}`] ??= halve(this.level(panel, down - by[0], across - by[1]), ...by);
    return panel.levels[`${down},${across}`];
  }

  colourise({ rows, columns, values }, { ceiling, diverging }) {
    const canvas = document.createElement('canvas');
    Object.assign(canvas, { width: columns, height: rows });
    const context = canvas.getContext('2d');
    const image = context.createImageData(columns, rows);
    const words = new Uint32Array(image.data.buffer);
    const pack = ([red, green, blue]) => ((255 << 24) | (blue << 16) | (green << 8) | red) >>> 0;
    const table = this.tables[diverging ? 'diverging' : 'sequential'].map(pack);
    const bad = pack(MAGENTA);
    let painted = 0;
    for (let at = 0; at < values.length; at++) {
      const value = values[at];
      if (value === Infinity) continue; // masked: the page shows through
      const place = Math.round(1023 * shade(value, ceiling, this.header.colour, diverging));
      words[at] = Number.isNaN(value) ? bad : table[place];
      painted += 1;
    }
    context.putImageData(image, 0, 0);
    return { canvas, painted };
  }

  /* ---- drawing ---- */

  refresh() {
    if (!this.panels || this.waiting) return;
    this.waiting = requestAnimationFrame(() => {
      this.waiting = 0;
      const ratio = window.devicePixelRatio || 1;
      const theme = readTheme(this.root);
      this.arrange(theme);
      let painted = 0;
      this.canvases.slice(0, this.panels.length).forEach((canvas, index) => {
        const pen = new CanvasPen(canvas, this.widths[index], TOP + this.side + this.bottom, ratio, theme);
        painted += this.drawPanel(pen, this.panels[index], ratio);
      });
      const { tokens } = this.header;
      const pooled = Math.max(...this.factors) > 1 ? [`each pixel is the maximum over ${this.factors.join(' \u00d7 ')} cells`] : [];
      this.root.querySelector('.legend').textContent = [...this.legend, ...pooled].join('   \u00b7   ');
      Object.assign(this.root.dataset, {
        tokens: tokens.length, updates: this.updates, painted, zoom: (tokens.length / this.span).toFixed(3),
      });
    });
  }

  /* Sizes for the room there is: side by side only the first panel names its rows; stacked, every panel does. */
  arrange(theme, column = null) {
    const pen = document.createElement('canvas').getContext('2d');
    pen.font = `11px ${theme.font}`;
    const longest = (tokens, span) => { // the page's margins stay when one zooms
      const numbered = column && COLUMN_SIDE / span < LABELS_FROM;
      return Math.max(30, ...(numbered ? [] : tokens.map((token) => pen.measureText(label(token)).width)));
    };
    const named = 26 + longest(this.header.tokens, this.span);
    this.bottom = 30 + longest(this.header.keys, this.wide);
    const width = column ?? this.root.clientWidth, together = width >= SIDE_BY_SIDE;
    this.lefts = together ? [named, BARE, BARE] : [named, named, named];
    const room = together && !this.header.single ? (width - named - 2 * BARE - 3 * STRIP - 2 * GAP) / 3 : width - named - STRIP;
    this.side = Math.floor(Math.max(40, Math.min(column ? COLUMN_SIDE : LARGEST, room)));
    this.widths = this.lefts.map((left) => left + this.side + STRIP);
    if (column) return; // an export: what the page shows stays as it is
    const columns = this.widths.map((each) => `${each}px`);
    this.root.querySelector('.panels').style.gridTemplateColumns = together ? columns.join(' ') : columns[0];
    this.canvases.forEach((canvas, index) => {
      Object.assign(canvas.style, { width: columns[index], height: `${TOP + this.side + this.bottom}px` });
    });
  }

  drawPanel(pen, panel, ratio) {
    this.left = this.lefts[panel.side]; // of the panel being drawn
    const { tokens, colour, unit, expected, selected, marked } = this.header;
    const { side, span, wide, x0, y0 } = this;
    const high = side / span, broad = side / wide, cell = Math.min(high, broad);
    const across = (j) => this.left + (j - x0) * broad, down = (i) => TOP + (i - y0) * high;
    pen.text(panel.title, this.left, 13, { size: 13, weight: 600 });
    drawBar(pen, { x: this.left, y: 24, width: side, table: this.tables[panel.diverging ? 'diverging' : 'sequential'],
      ceiling: panel.ceiling, colour, diverging: panel.diverging, title: panel.diverging ? 'difference' : unit });
    const { canvas, painted, factors } = this.picture(panel, high * ratio, broad * ratio);
    this.factors = factors;
    pen.image(canvas, [x0, y0, wide, span].map((value, at) => value / factors[1 - (at % 2)]), this.left, TOP, side, side);
    if (this.header.causal) this.drawDiagonal(pen, across, down);
    const right = this.left + side, floor = TOP + side;
    pen.line([[this.left, TOP], [right, TOP], [right, floor], [this.left, floor], [this.left, TOP]], pen.theme.border);
    const inside = (i, j) => i + 1 > y0 && i < y0 + span && j + 1 > x0 && j < x0 + wide;
    for (const [i, j] of cell >= 3 ? expected : []) {
      const [x, y] = [across(j + 0.5), down(i + 0.5)], radius = Math.min(6, Math.max(2, cell * 0.32));
      if (x < this.left || x > this.left + side || y < TOP || y > TOP + side) continue;
      pen.ring(x, y, radius, '#000000', 2.4); // dark under light: visible on every colour
      pen.ring(x, y, radius, '#ffffff', 1.2);
    }
    this.drawAxes(pen, across, down, high, broad);
    this.drawEntropy(pen, panel, down);
    marked.forEach((t) => this.drawMark(pen, t, across, down, MARK));
    if (selected !== null) this.drawMark(pen, selected, across, down, pen.theme.accent);
    if (this.cursor && inside(...this.cursor)) this.drawCursor(pen, ...this.cursor, across, down, high, broad);
    return painted;
  }

  /* The staircase between what a causal row may see and the future, which has the page's colour. */
  drawDiagonal(pen, across, down) {
    const from = Math.max(this.x0, this.y0), to = Math.min(this.x0, this.y0) + this.span;
    const edge = [];
    for (let t = Math.floor(from); t < to; t++) edge.push([t, t], [t + 1, t]);
    if (Math.ceil(to) < this.header.tokens.length) edge.push([Math.ceil(to), to]);
    const clamp = (value, low) => Math.min(low + this.span, Math.max(low, value));
    if (edge.length > 1) pen.line(edge.map(([j, i]) => [across(clamp(j, this.x0)), down(clamp(i, this.y0))]), pen.theme.border);
  }

  drawAxes(pen, across, down, high, broad) {
    const { tokens, numbers, keys, key_numbers: keyNumbers, selected, square } = this.header;
    const named = this.left > BARE;
    const ticks = (cell, texts, places, start, span, chosen) => {
      const step = cell >= LABELS_FROM ? 1 : niceStep(34 / cell);
      const last = Math.min(texts.length, Math.ceil(start + span));
      return texts.map((text, t) => ({ t, text: cell >= LABELS_FROM ? label(text) : String(places[t]),
        style: { size: cell >= LABELS_FROM ? Math.min(11, cell) : 10, align: 'right',
          ...(t === chosen ? { weight: 700, fill: pen.theme.accent } : {}) } }))
        .filter(({ t }) => t % step === 0 && t + 0.5 >= start && t + 0.5 <= start + span && t < last);
    };
    for (const { t, text, style } of named ? ticks(high, tokens, numbers, this.y0, this.span, selected) : []) {
      pen.text(text, this.left - 5, down(t + 0.5) + 3.5, style);
    }
    for (const { t, text, style } of ticks(broad, keys, keyNumbers, this.x0, this.wide, square ? selected : null)) {
      pen.text(text, across(t + 0.5) + 3.5, TOP + this.side + 6, { ...style, turn: -90 });
    }
    const middle = this.side / 2;
    pen.text('key j (token)', this.left + middle, TOP + this.side + this.bottom - 6, { align: 'center', opacity: 0.75 });
    if (named) pen.text('query i (token)', 11, TOP + middle, { align: 'center', turn: -90, opacity: 0.75 });
  }

  /* Entropy of each row as a curve beside the map, on the map's own rows. */
  drawEntropy(pen, panel, down) {
    const left = this.left + this.side + 8, width = STRIP - 20;
    const ceiling = this.header.entropy_scale[panel.diverging ? 1 : 0];
    const zero = panel.diverging ? left + width / 2 : left;
    const scale = (panel.diverging ? width / 2 : width) / (ceiling || 1);
    const points = [];
    panel.entropy.forEach((value, i) => {
      if (value === null || i + 1 <= this.y0 || i >= this.y0 + this.span) return;
      const x = zero + value * scale, bottom = TOP + this.side;
      points.push([x, Math.max(TOP, down(i))], [x, Math.min(bottom, down(i + 1))]);
    });
    if (points.length) {
      const closed = [[zero, points[0][1]], ...points, [zero, points.at(-1)[1]]];
      pen.line(closed, null, 1, panel.diverging ? '#009e7333' : '#0072b233');
      pen.line(points, panel.diverging ? '#009e73' : '#0072b2', 1.2);
    }
    pen.line([[zero, TOP], [zero, TOP + this.side]], pen.theme.border);
    const tick = { size: 9 }, at = TOP + this.side + 12; // clear of the last key's label, which ends at the map's edge
    if (panel.diverging) pen.text(`\u00b1${short(ceiling)}`, zero, at, { ...tick, align: 'center' });
    else {
      pen.text('0', left + 1, at, tick);
      pen.text(short(ceiling), left + width + 4, at, { ...tick, align: 'right' });
    }
    pen.text(panel.diverging ? '\u0394 entropy' : 'entropy', left + 1, at + 13, { ...tick, opacity: 0.75 });
    pen.text('(nats)', left + 1, at + 24, { ...tick, opacity: 0.75 });
  }

  /* Small triangles at the row and column of the selected token, and of each that is marked. */
  drawMark(pen, t, across, down, colour) {
    const y = down(t + 0.5), x = this.header.square ? across(t + 0.5) : -1, { side } = this;
    if (y >= TOP && y <= TOP + side) pen.line([[this.left - 5, y - 4], [this.left, y], [this.left - 5, y + 4]], null, 1, colour);
    if (x >= this.left && x <= this.left + side) {
      pen.line([[x - 4, TOP + side + 5], [x, TOP + side], [x + 4, TOP + side + 5]], null, 1, colour);
    }
  }

  drawCursor(pen, i, j, across, down, high, broad) {
    const { tokens, keys } = this.header, { side } = this, bottom = TOP + side, right = this.left + side;
    const clip = (value, low, high) => Math.min(high, Math.max(low, value));
    const [y, y2] = [down(i), down(i + 1)].map((value) => clip(value, TOP, bottom));
    const [x, x2] = [across(j), across(j + 1)].map((value) => clip(value, this.left, right));
    for (const level of [y, y2]) pen.line([[this.left, level], [right, level]], VERMILION, 0.8);
    for (const level of [x, x2]) pen.line([[level, TOP], [level, bottom]], VERMILION, 0.8);
    const chip = (text, cx, cy, turn) => pen.text(text, cx, cy, { align: 'right', weight: 700, fill: VERMILION, turn });
    const tall = Math.max(23, high), size = Math.max(23, broad); // cover the tick labels that they would cross
    if (this.left > BARE) {
      pen.rect(16, (y + y2) / 2 - tall / 2, this.left - 19, tall, pen.theme.background);
      chip(label(tokens[i]), this.left - 5, (y + y2) / 2 + 3.5, 0);
    }
    pen.rect((x + x2) / 2 - size / 2, bottom + 3, size, this.bottom - 22, pen.theme.background);
    chip(label(keys[j]), (x + x2) / 2 + 3.5, bottom + 6, -90);
  }

  /* ---- what the reader does ---- */

  reset(header = this.header) {
    Object.assign(this, { x0: 0, y0: 0, span: header.tokens.length, wide: header.keys.length });
    this.refresh();
  }

  /* Columns a row: 1 for a square map, and the window always has the map's shape. */
  get shape() {
    return this.header.keys.length / this.header.tokens.length;
  }

  /* Keep the window of `span` rows inside the map; the least window is four cells high. */
  look(x0, y0, span) {
    const length = this.header.tokens.length;
    this.span = Math.min(length, Math.max(Math.min(4, length), span));
    this.wide = this.span * this.shape;
    this.x0 = Math.min(this.header.keys.length - this.wide, Math.max(0, x0));
    this.y0 = Math.min(length - this.span, Math.max(0, y0));
    this.refresh();
  }

  cellAt(event) {
    if (!this.lefts) return null;
    const left = this.lefts[this.canvases.indexOf(event.target)];
    const j = Math.floor(this.x0 + ((event.offsetX - left) / this.side) * this.wide);
    const i = Math.floor(this.y0 + ((event.offsetY - TOP) / this.side) * this.span);
    const rows = this.header?.tokens.length ?? 0, columns = this.header?.keys.length ?? 0;
    const within = (at, from) => at >= from && at < from + this.side;
    return within(event.offsetX, left) && within(event.offsetY, TOP) && i < rows && j < columns ? [i, j] : null;
  }

  listen(canvas) {
    let drag = null;
    canvas.addEventListener('wheel', (event) => {
      if (!this.cellAt(event)) return; // over the margins the page scrolls
      event.preventDefault();
      const factor = Math.exp(event.deltaY * 0.002), span = Math.max(4, Math.min(this.header.tokens.length, this.span * factor));
      const fx = (event.offsetX - this.lefts[this.canvases.indexOf(canvas)]) / this.side, fy = (event.offsetY - TOP) / this.side;
      this.look(this.x0 + fx * (this.wide - span * this.shape), this.y0 + fy * (this.span - span), span);
    }, { passive: false });
    canvas.addEventListener('pointerdown', (event) => {
      drag = { x: event.offsetX, y: event.offsetY, x0: this.x0, y0: this.y0, moved: false };
      canvas.setPointerCapture(event.pointerId);
    });
    canvas.addEventListener('pointermove', (event) => {
      if (!this.header) return;
      const [dx, dy] = drag ? [event.offsetX - drag.x, event.offsetY - drag.y] : [0, 0];
      if (drag && Math.hypot(dx, dy) > 3) drag.moved = true;
      if (drag?.moved) this.look(drag.x0 - (dx / this.side) * this.wide, drag.y0 - (dy / this.side) * this.span, this.span);
      else this.point(this.cellAt(event));
    });
    canvas.addEventListener('pointerup', (event) => {
      const cell = drag && !drag.moved && this.cellAt(event);
      drag = null;
      if (cell) this.choose(...cell);
    });
    canvas.addEventListener('pointerleave', () => !drag && this.point(null));
    canvas.addEventListener('dblclick', () => this.header && this.reset());
    canvas.addEventListener('keydown', (event) => this.header && this.key(event));
  }

  key(event) {
    const steps = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };
    const [i, j] = this.cursor ?? [0, 0], { tokens, keys } = this.header, step = steps[event.key];
    const clip = (value, several) => Math.min(several.length - 1, Math.max(0, value));
    if (step) this.point([clip(i + step[0], tokens), clip(j + step[1], keys)]);
    else if (event.key === 'Enter') this.choose(i, j);
    else if (event.key === '+' || event.key === '-') {
      const span = this.span * (event.key === '+' ? 0.8 : 1.25);
      this.look(j + 0.5 - (span * this.shape) / 2, i + 0.5 - span / 2, span);
    } else if (event.key === '0') this.reset();
    else return;
    event.preventDefault();
  }

  point(cell) {
    this.cursor = cell;
    this.root.querySelector('.readout').textContent = cell ? this.describeCell(...cell) : '';
    this.refresh();
  }

  choose(i, j) {
    this.header.selected = i; // seen at once; Python's answer confirms it
    this.describe();
    this.refresh();
    this.pick(i, j);
  }

  describeCell(i, j) {
    const { tokens, numbers, keys, key_numbers: keyNumbers, titles, causal, peaks } = this.header;
    const where = `query (${numbers[i]}) ${label(tokens[i], 24)}   key (${keyNumbers[j]}) ${label(keys[j], 24)}`;
    if (this.maps[0][i * keys.length + j] === Infinity && !(causal && j > i)) return `${where}\nmasked: this row does not see this key`;
    if (causal && j > i) return `${where}\nmasked: a causal row does not see later tokens`;
    const at = i * keys.length + j, [a, b] = this.maps.map((map) => map[at]);
    const digits = (value) => (Number.isNaN(value) ? 'not finite'
      : value && Math.abs(value) < 1e-4 ? value.toExponential(3) : value.toFixed(6)).padEnd(10);
    const error = this.maps.reduce((sum, map, side) => sum + Math.sqrt(map[at] * peaks[side]) / 65532, 0);
    const known = this.exact.has(i) ? 'float32' : `\u00b1 ${error.toExponential(0)} (16 bit; click a row for float32)`;
    const sign = b - a > 0 ? '+' : '';
    if (this.header.single) return `${where}\n${titles[0]} ${digits(a)}   ${known}`;
    return `${where}\n${titles[0]} ${digits(a)}   ${titles[1]} ${digits(b)}   difference ${sign}${digits(b - a)}   ${known}`;
  }

  press(kind) {
    if (!this.panels) return;
    if (kind === 'reset') return this.reset();
    const theme = readTheme(this.root), column = kind === 'column' ? COLUMN : null;
    this.arrange(theme, column);
    this.exportPanels(kind, theme, this.lefts[1] !== BARE);
    this.refresh(); // which arranges for the page again
  }

  /* Heading, the three panels beside or below each other, and what the legend says. */
  exportPanels(kind, theme, stacked) {
    const panel = TOP + this.side + this.bottom + (stacked ? GAP : 0);
    const several = this.panels.length;
    const along = (count) => this.widths.slice(0, count).reduce((sum, each) => sum + each + GAP, 0);
    const width = kind === 'column' ? COLUMN : stacked ? this.widths[0] : along(several) - GAP;
    const { heading, note, name } = this.header;
    const notes = [...this.legend, ...(kind === 'png' ? [] : ['cells are an embedded raster, text and curves are vectors'])];
    const titles = inLines(note ? `${heading} \u2014 ${note}` : heading, width - 8, 13, 600, theme);
    const foot = inLines(notes.join(' \u00b7 '), width - 8, 11, 400, theme);
    const top = 10 + 17 * titles.length, floor = top + panel * (stacked ? several : 1);
    exportFigure(kind, width, floor + 8 + 15 * foot.length, theme, (pen) => {
      titles.forEach((line, at) => pen.text(line, 4, 16 + 17 * at, { size: 13, weight: 600 }));
      this.panels.forEach((one, side) => {
        pen.origin(...(stacked ? [0, top + side * panel] : [along(side), top]));
        this.drawPanel(pen, one, 3);
      });
      pen.origin(0, floor);
      foot.forEach((line, at) => pen.text(line, 4, 14 + 15 * at, { size: 11, opacity: 0.75 }));
    }, name);
  }

  dispose() {
    this.resizing.disconnect();
    cancelAnimationFrame(this.waiting);
  }
}

/* Codes 0..65533 are (code / 65533)^2 of the map's peak, 65534 is masked, 65535 is not finite; high bytes first, then low bytes. */
function decode(codes, { tokens, keys, causal, peaks }) {
  const rows = tokens.length, columns = keys.length, count = causal ? (rows * (rows + 1)) / 2 : rows * columns;
  return peaks.map((peak, side) => {
    const values = new Float32Array(rows * columns).fill(Infinity);
    let from = 2 * count * side;
    for (let i = 0; i < rows; i++) {
      for (let j = 0; j < (causal ? i + 1 : columns); j++, from++) {
        const code = (codes[from] << 8) | codes[from + count];
        values[i * columns + j] = code === 65535 ? NaN : code === 65534 ? Infinity : (code / 65533) ** 2 * peak;
      }
    }
    return values;
  });
}

/* Two cells into one, downwards (1 or 0) and across (1 or 0): the cell of largest magnitude; masked only if all are, not
 * finite if any is. */
function halve({ rows, columns, values }, down, across) {
  const high = Math.ceil(rows / (1 + down)), broad = Math.ceil(columns / (1 + across));
  const result = new Float32Array(high * broad).fill(Infinity);
  for (let i = 0; i < rows; i++) {
    for (let j = 0; j < columns; j++) {
      const value = values[i * columns + j], at = (i >> down) * broad + (j >> across), now = result[at];
      if (value === Infinity || Number.isNaN(now)) continue;
      if (now === Infinity || Number.isNaN(value) || Math.abs(value) > Math.abs(now)) result[at] = value;
    }
  }
  return { rows: high, columns: broad, values: result };
}

function niceStep(least) {
  const power = 10 ** Math.floor(Math.log10(Math.max(1, least)));
  return [1, 2, 5, 10].map((digit) => digit * power).find((step) => step >= least);
}

export default function (component) {
  const root = component.parentElement.querySelector('.maps');
  if (!STATE.has(root)) STATE.set(root, new MapView(root));
  const view = STATE.get(root);
  view.pick = (i, j) => component.setTriggerValue('picked', [i, j]);
  view.update(component.data).catch((fault) => {
    root.querySelector('.readout').textContent = `These maps could not be drawn: ${fault.message}`;
    throw fault;
  });
  return () => { view.dispose(); STATE.delete(root); };
}
