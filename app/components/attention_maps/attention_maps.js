/* Two attention maps and their difference, side by side, with one zoom, one cursor and one readout.
 * Rows are queries i, columns keys j. pens.js and sheets.js, which stand before this file, draw, export and hold cells.
 *
 * Zoomed out, a pixel shows the maximum over its cells (largest magnitude for the difference), never a sample. A long
 * text's maps come as one pooled sheet; what one looks at closely is then fetched, as a second sheet that lies on it.
 * Places on the page are in tokens, whatever a sheet's cells are. */

const MARK = '#e69f00'; // of marked tokens, as on every page
const TOP = 72, STRIP = 54, GAP = 10; // above a map, right of it, between panels
const BARE = 12; // left of a map whose rows are named by the panel beside it
const SIDE_BY_SIDE = 700; // CSS pixels: a narrower page stacks the panels
const LARGEST = 560; // CSS pixels of a map, so that it fits a screen
const COLUMN_SIDE = 150; // of a map in a journal's column: three of them, stacked, fit a page of 9 in
const LABELS_FROM = 9; // CSS pixels a cell: below it, ticks are numbers
const PART = 640; // cells a side of a part, at most: more than a map has pixels
const PAUSE = 120; // milliseconds for which a view, or the cursor, rests before anything is asked for
const ROWS_HELD = 256; // exact rows
const STATE = new WeakMap();

class MapView {
  constructor(root) {
    this.root = root;
    this.canvases = [...root.querySelectorAll('canvas')];
    this.updates = 0;
    this.cursor = null;
    this.asking = '';
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
      this.recall();
      this.whole = new Sheet(codes, header, 0, 0, header.tokens.length, width);
      this.part = null;
      this.exact = new Map();
      if (resized) {
        this.cursor = null;
        this.reset(header);
      }
    }
    if (exactBytes) this.keepRow(header.exact, new Float32Array(rest.buffer, rest.byteOffset, exactBytes / 4));
    this.header = header;
    this.tables = { sequential: colourTable(header.sequential), diverging: colourTable(header.diverging) };
    [this.whole, this.part].forEach((sheet) => sheet?.recolour());
    this.canvases.forEach((canvas, index) => { canvas.parentElement.hidden = header.single && index > 0; });
    this.panels = [0, 1, 2].slice(0, header.single ? 1 : 3).map((side) => ({
      side, title: header.titles[side], diverging: side === 2,
      ceiling: side < 2 ? header.ceiling : header.difference_ceiling, entropy: header.entropy[side],
    }));
    this.look(this.x0, this.y0, this.span); // the same place; of a new map its part is asked for
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

  keepRow(row, values) {
    if (this.exact.size >= ROWS_HELD) this.exact.delete(this.exact.keys().next().value);
    const width = values.length / 2;
    this.exact.set(row, [values.subarray(0, width), values.subarray(width)]);
  }

  /* ---- parts, from the server ---- */

  /* Once the view rests: the exact cells of what is seen and a little around it, or finer bins where it is wide. */
  want() {
    clearTimeout(this.resting);
    if (!this.header?.tiles || this.header.factor === 1) return;
    this.resting = setTimeout(() => this.fetchPart(), PAUSE);
  }

  /* No part is wanted any more, and what is on its way is void: it was of another view, or of other maps. */
  recall() {
    clearTimeout(this.resting);
    this.fetching?.abort();
    this.say('');
  }

  /* One at a time: a newer fetch ends an older one, so that none overtakes another. */
  async fetchPart() {
    this.recall();
    const { tokens, keys, factor: whole } = this.header;
    const wide = Math.max(this.span, this.wide);
    const factor = 2 ** Math.max(0, Math.ceil(Math.log2(wide / PART)));
    if (factor >= whole || this.part?.covers(this, factor)) return;
    const around = (from, span, count) => {
      const room = Math.min(count, PART * factor), spare = Math.max(0, (room - span) / 2);
      const first = Math.max(0, Math.min(count - room, Math.floor((from - spare) / factor) * factor));
      return [first, Math.min(count, first + room)];
    };
    const [top, bottom] = around(this.y0, this.span, tokens.length), [left, right] = around(this.x0, this.wide, keys.length);
    const { signal } = (this.fetching = new AbortController());
    this.say('Fetching the exact cells\u2026');
    const data = await this.ask(`rows=${top}:${bottom}&columns=${left}:${right}&factor=${factor}`, signal);
    if (signal.aborted) return;
    this.say(data ? '' : 'The exact cells could not be had: what is seen stays pooled.');
    if (!data) return;
    const [words, body] = unpack(data);
    const codes = await inflate(body);
    if (signal.aborted) return;
    this.part = new Sheet(codes, { ...words, factor, causal: false }, top, left, bottom - top, right - left);
    this.updates += 1;
    this.refresh();
  }

  /* The exact row under the cursor: its readout is then float32. */
  wantRow(row) {
    clearTimeout(this.hovering);
    if (!this.header.tiles || this.exact.has(row)) return;
    this.hovering = setTimeout(async () => {
      const { digest } = this.header, data = await this.ask(`row=${row}`);
      if (!data || digest !== this.header.digest) return;
      this.keepRow(row, new Float32Array(data.buffer));
      if (this.cursor) this.readOut();
    }, PAUSE);
  }

  async ask(query, signal = null) {
    try {
      const answer = await fetch(`${this.header.tiles}?${query}`, { signal });
      return answer.ok ? new Uint8Array(await answer.arrayBuffer()) : null;
    } catch {
      return null;
    }
  }

  say(text) {
    this.asking = text;
    this.refresh();
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
      this.root.querySelector('.legend').textContent = [...this.legend, this.reduced(), this.asking].filter(Boolean).join('   \u00b7   ');
      Object.assign(this.root.dataset, {
        tokens: tokens.length, updates: this.updates, painted, zoom: (tokens.length / this.span).toFixed(3),
        factor: this.sheet.factor,
      });
    });
  }

  /* What was reduced in the picture that is seen, in words. */
  reduced() {
    const [down, across] = this.factors;
    if (Math.max(down, across) === 1) return this.header.factor > 1 ? 'exact cells' : '';
    const closer = this.sheet.factor > 1 && this.header.tiles ? '; zoom in for exact cells' : '';
    return `each ${this.sheet.factor > 1 ? 'cell' : 'pixel'} is the maximum over ${down} \u00d7 ${across} token pairs${closer}`;
  }

  /* The finest sheet that covers what is seen. */
  get sheet() {
    return this.part?.covers(this, this.part.factor) ? this.part : this.whole;
  }

  /* Sizes for the room there is: side by side only the first panel names its rows; stacked, every panel does. */
  arrange(theme, column = null) {
    const longest = (tokens, span) => { // the page's margins stay when one zooms
      const numbered = column && COLUMN_SIDE / span < LABELS_FROM;
      return numbered ? 30 : Math.max(30, this.widest(tokens, theme.font));
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

  /* CSS pixels of the longest label, measured once a set of tokens: there may be thousands. */
  widest(tokens, font) {
    if (this.measured?.tokens !== tokens || this.measured.font !== font) {
      const pen = document.createElement('canvas').getContext('2d');
      pen.font = `11px ${font}`;
      const labels = [...new Set(tokens.map((token) => label(token)))];
      this.measured = { tokens, font, width: Math.max(...labels.map((text) => pen.measureText(text).width)) };
    }
    return this.measured.width;
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
    const { sheet } = this;
    const bend = { ...panel, colour: this.header.colour, table: this.tables[panel.diverging ? 'diverging' : 'sequential'] };
    const { canvas, painted, factors } = sheet.picture(bend, high * ratio, broad * ratio);
    this.factors = factors;
    const seen = [(x0 - sheet.left) / factors[1], (y0 - sheet.top) / factors[0], wide / factors[1], span / factors[0]];
    pen.image(canvas, seen, this.left, TOP, side, side);
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
    const edge = [], step = Math.max(1, Math.floor((2 * this.span) / this.side)); // no step is finer than two pixels
    for (let t = Math.floor(from); t < to; t += step) edge.push([t, t], [Math.min(t + step, Math.ceil(to)), t]);
    if (Math.ceil(to) < this.header.tokens.length) edge.push([Math.ceil(to), to]);
    const clamp = (value, low) => Math.min(low + this.span, Math.max(low, value));
    if (edge.length > 1) pen.line(edge.map(([j, i]) => [across(clamp(j, this.x0)), down(clamp(i, this.y0))]), pen.theme.border);
  }

  drawAxes(pen, across, down, high, broad) {
    const { tokens, numbers, keys, key_numbers: keyNumbers, selected, square } = this.header;
    const named = this.left > BARE;
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
    const points = [], bottom = TOP + this.side, rows = Math.max(1, Math.floor(this.span / this.side));
    const last = Math.min(panel.entropy.length, Math.ceil(this.y0 + this.span));
    for (let i = Math.floor(this.y0 / rows) * rows; i < last; i += rows) { // of the rows of one pixel the least and the largest
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
    this.recall();
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
    this.want();
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
    if (cell) this.wantRow(cell[0]);
    this.readOut();
    this.refresh();
  }

  readOut() {
    this.root.querySelector('.readout').textContent = this.cursor ? this.describeCell(...this.cursor) : '';
  }

  choose(i, j) {
    this.header.selected = i; // seen at once; Python's answer confirms it
    this.describe();
    this.refresh();
    this.pick(i, j);
  }

  describeCell(i, j) {
    const { tokens, numbers, keys, key_numbers: keyNumbers, titles, causal } = this.header;
    const where = `query (${numbers[i]}) ${label(tokens[i], 24)}   key (${keyNumbers[j]}) ${label(keys[j], 24)}`;
    if (causal && j > i) return `${where}\nmasked: a causal row does not see later tokens`;
    const row = this.exact.get(i), { sheet } = this;
    let [a, b, gap] = [0, 1, 2].map((side) => sheet.at(side, i, j));
    if (a === Infinity) return `${where}\nmasked: this row does not see this key`;
    let known = 'float32';
    if (row) [a, b, gap] = [row[0][j], row[1][j], row[1][j] - row[0][j]];
    else if (sheet.factor > 1) known = `largest of ${sheet.factor} \u00d7 ${sheet.factor} token pairs`;
    else known = `\u00b1 ${sheet.error(i, j).toExponential(0)} (${this.header.tiles ? 'rest for' : 'click a row for'} float32)`;
    const digits = (value) => (Number.isNaN(value) ? 'not finite'
      : value && Math.abs(value) < 1e-4 ? value.toExponential(3) : value.toFixed(6)).padEnd(10);
    if (this.header.single) return `${where}\n${titles[0]} ${digits(a)}   ${known}`;
    return `${where}\n${titles[0]} ${digits(a)}   ${titles[1]} ${digits(b)}   difference ${gap > 0 ? '+' : ''}${digits(gap)}   ${known}`;
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
    const notes = [...this.legend, this.reduced(), ...(kind === 'png' ? [] : ['cells are an embedded raster, text and curves are vectors'])];
    const titles = inLines(note ? `${heading} \u2014 ${note}` : heading, width - 8, 13, 600, theme);
    const foot = inLines(notes.filter(Boolean).join(' \u00b7 '), width - 8, 11, 400, theme);
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
    this.recall();
    this.resizing.disconnect();
    clearTimeout(this.hovering);
    cancelAnimationFrame(this.waiting);
  }
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
