/* Two attention maps and their difference, side by side, with one zoom, one cursor and one readout.
 * Rows are queries i, columns keys j. Before this file stand sheets.js (cells), parts.js (what the server is asked for),
 * layout.js, panels.js (drawing), readout.js and gestures.js, and before them the pens that several components share.
 *
 * Zoomed out, a pixel shows the maximum over its cells (largest magnitude for the difference), never a sample. A long
 * text's maps come as one pooled sheet; what one looks at closely is then fetched, as a second sheet that lies on it.
 * Places on the page are in tokens, whatever a sheet's cells are. */

const STATE = new WeakMap();

class MapView {
  constructor(root) {
    this.root = root;
    this.canvases = [...root.querySelectorAll('canvas')];
    this.updates = 0;
    this.cursor = null;
    this.parts = new Parts(this);
    this.canvases.forEach((canvas) => listen(this, canvas));
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
      this.parts.recall();
      this.parts.forget();
      this.whole = new Sheet(codes, header, 0, 0, header.tokens.length, width);
      if (resized) {
        this.cursor = null;
        this.reset(header);
      }
    }
    if (exactBytes) this.parts.keepRow(header.exact, new Float32Array(rest.buffer, rest.byteOffset, exactBytes / 4));
    this.header = header;
    this.tables = { sequential: colourTable(header.sequential), diverging: colourTable(header.diverging) };
    [this.whole, this.parts.sheet].forEach((sheet) => sheet?.recolour());
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
    this.root.querySelector('.heading span').textContent = this.header.heading;
    this.root.querySelector('.note').textContent = this.header.note;
    this.legend = legendOf(this.header);
  }

  /* ---- drawing ---- */

  refresh() {
    if (!this.panels || this.waiting) return;
    this.waiting = requestAnimationFrame(() => {
      this.waiting = 0;
      const ratio = window.devicePixelRatio || 1;
      const theme = readTheme(this.root);
      arrange(this, theme);
      let painted = 0;
      this.canvases.slice(0, this.panels.length).forEach((canvas, index) => {
        const pen = new CanvasPen(canvas, this.widths[index], TOP + this.side + this.bottom, ratio, theme);
        painted += drawPanel(pen, this, this.panels[index], ratio);
      });
      const { tokens } = this.header;
      this.root.querySelector('.legend').textContent = [...this.legend, reduced(this), this.parts.asking].filter(Boolean).join('   \u00b7   ');
      Object.assign(this.root.dataset, {
        tokens: tokens.length, updates: this.updates, painted, zoom: (tokens.length / this.span).toFixed(3),
        factor: this.sheet.factor,
      });
    });
  }

  /* The finest sheet that covers what is seen. */
  get sheet() {
    const { sheet } = this.parts;
    return sheet?.covers(this, sheet.factor) ? sheet : this.whole;
  }

  /* ---- what the reader does ---- */

  reset(header = this.header) {
    Object.assign(this, { x0: 0, y0: 0, span: header.tokens.length, wide: header.keys.length });
    this.parts.recall();
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
    this.parts.want();
    this.refresh();
  }

  point(cell) {
    this.cursor = cell;
    if (cell) this.parts.wantRow(cell[0]);
    this.readOut();
    this.refresh();
  }

  readOut() {
    this.root.querySelector('.readout').textContent = this.cursor ? describeCell(this, ...this.cursor) : '';
  }

  choose(i, j) {
    this.header.selected = i; // seen at once; Python's answer confirms it
    this.describe();
    this.refresh();
    this.pick(i, j);
  }

  press(kind) {
    if (!this.panels) return;
    if (kind === 'reset') return this.reset();
    const theme = readTheme(this.root), column = kind === 'column' ? COLUMN : null;
    arrange(this, theme, column);
    exportPanels(this, kind, theme, this.lefts[1] !== BARE);
    this.refresh(); // which arranges for the page again
  }

  dispose() {
    this.parts.dispose();
    this.resizing.disconnect();
    cancelAnimationFrame(this.waiting);
  }
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
