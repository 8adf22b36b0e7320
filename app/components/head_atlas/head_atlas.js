/* Every head of every layer as one picture: layers from left to right, heads from top to bottom. pens.js stands before
 * this file. A cell is one byte: 0..254 is its place on the colour scale, 255 is not finite (magenta); a causal map's
 * future is not painted. */

const EDGE = { left: 58, top: 60, right: 8, bottom: 8, gap: 5 };
const LARGEST_TILE = 104;
const TALLEST = 640; // CSS pixels of all heads together, where tiles are not smaller than their cells
const ATLASES = new WeakMap();

class Atlas {
  constructor(root) {
    this.root = root;
    this.canvas = root.querySelector('canvas');
    this.updates = 0;
    this.hover = null;
    this.canvas.addEventListener('pointermove', (event) => this.point(this.headAt(event)));
    this.canvas.addEventListener('pointerleave', () => this.point(null));
    this.canvas.addEventListener('click', (event) => this.choose(this.headAt(event)));
    this.canvas.addEventListener('keydown', (event) => this.header && this.key(event));
    root.querySelectorAll('button').forEach((button) => button.addEventListener('click', () => this.save(button.name)));
    root.addEventListener('transitionend', (event) => event.target === root && this.refresh());
    this.resizing = new ResizeObserver(() => this.refresh());
    this.resizing.observe(root);
  }

  async update(data) {
    const turn = (this.turn = (this.turn ?? 0) + 1);
    const [header, body] = unpack(data);
    const codes = await inflate(body);
    if (turn !== this.turn) return; // a newer message overtook this one
    this.header = header;
    this.hover = null;
    this.table = colourTable(header.stops);
    this.picture = this.paint(codes);
    this.updates += 1;
    this.root.querySelector('.heading span').textContent = header.title;
    this.root.querySelector('.note').textContent = header.note;
    this.refresh();
  }

  /* All tiles in one canvas without gaps: tile (layer, head) starts at layer times cells, head times rows. */
  paint(codes) {
    const { layers, heads, rows, cells, counts, causal } = this.header;
    const canvas = document.createElement('canvas');
    canvas.width = layers.length * cells;
    canvas.height = heads * rows;
    const context = canvas.getContext('2d');
    const image = context.createImageData(canvas.width, canvas.height);
    this.painted = 0;
    for (let at = 0; at < codes.length; at++) {
      const column = at % cells, row = Math.floor(at / cells) % rows, tile = Math.floor(at / (cells * rows));
      const head = tile % heads, layer = Math.floor(tile / heads);
      if ((causal && column > row) || head >= counts[layer]) continue;
      const rgb = codes[at] === 255 ? MAGENTA : this.table[Math.round((codes[at] * 1023) / 254)];
      image.data.set([...rgb, 255], 4 * ((head * rows + row) * canvas.width + layer * cells + column));
      this.painted += 1;
    }
    context.putImageData(image, 0, 0);
    return canvas;
  }

  refresh() {
    if (!this.header || this.waiting) return;
    this.waiting = requestAnimationFrame(() => {
      this.waiting = 0;
      const { layers, heads, chosen } = this.header;
      const ratio = window.devicePixelRatio || 1;
      this.arrange(this.root.clientWidth, ratio, 420);
      Object.assign(this.canvas.style, { width: `${this.width}px`, height: `${this.height}px` });
      this.root.querySelector('.foot').style.maxWidth = `${this.width}px`;
      this.draw(new CanvasPen(this.canvas, this.width, this.height, ratio, readTheme(this.root)), true);
      Object.assign(this.root.dataset, {
        layers: layers.length, heads, updates: this.updates, painted: this.painted, selected: chosen.join(','),
        hover: this.hover?.join(',') ?? '',
      });
    });
  }

  /* Sizes for the room there is: `ratio` device pixels a CSS pixel, and never below one a cell, which would sample. */
  arrange(room, ratio, least) {
    const { layers, heads, rows, cells } = this.header;
    const tile = (room - EDGE.left - EDGE.right) / layers.length - EDGE.gap;
    const fitting = TALLEST / heads - EDGE.gap;
    this.tile = Math.max(cells / ratio, rows / ratio, Math.min(LARGEST_TILE, tile, fitting));
    this.width = Math.max(least, EDGE.left + layers.length * (this.tile + EDGE.gap) + EDGE.right);
    this.height = EDGE.top + heads * (this.tile + EDGE.gap) + EDGE.bottom;
  }

  place(layer, head) {
    return [EDGE.left + layer * (this.tile + EDGE.gap), EDGE.top + head * (this.tile + EDGE.gap)];
  }

  draw(pen, live) {
    const { layers, heads, rows, cells, counts, chosen, ceiling, colour, diverging, unit } = this.header;
    const width = Math.min(300, this.width - EDGE.left - 10);
    drawBar(pen, { x: EDGE.left, y: 4, width, table: this.table, ceiling, colour, diverging, title: unit });
    const tile = this.tile, narrow = tile < 52;
    if (narrow) pen.text('layer', EDGE.left - 8, EDGE.top - 5, { align: 'right' });
    for (let layer = 0; layer < layers.length; layer++) {
      const [x] = this.place(layer, 0);
      pen.text(narrow ? layers[layer] : `layer ${layers[layer]}`, x + tile / 2, EDGE.top - 5, { align: 'center' });
      for (let head = 0; head < heads; head++) {
        const [, y] = this.place(0, head);
        if (layer === 0) pen.text(`head ${head}`, EDGE.left - 8, y + tile / 2 + 4, { align: 'right' });
        if (head >= counts[layer]) continue; // this layer has no such head
        pen.image(this.picture, [layer * cells, head * rows, cells, rows], x, y, tile, tile);
        this.frame(pen, layer, head, pen.theme.border, 1);
      }
    }
    if (chosen[0] >= 0) this.frame(pen, ...chosen, VERMILION, 3);
    if (live && this.hover) this.frame(pen, ...this.hover, pen.theme.text, 2);
  }

  frame(pen, layer, head, colour, width) {
    const [x, y] = this.place(layer, head), pad = width / 2, far = this.tile + pad;
    const corners = [[x - pad, y - pad], [x + far, y - pad], [x + far, y + far], [x - pad, y + far]];
    pen.line([...corners, [x - pad, y - 2 * pad]], colour, width);
  }

  headAt(event) {
    if (!this.header) return null;
    const step = this.tile + EDGE.gap;
    const layer = Math.floor((event.offsetX - EDGE.left) / step), head = Math.floor((event.offsetY - EDGE.top) / step);
    const inside = layer >= 0 && head >= 0 && layer < this.header.layers.length && head < this.header.counts[layer];
    return inside ? [layer, head] : null;
  }

  point(place) {
    if (String(place) === String(this.hover)) return;
    this.hover = place;
    this.root.querySelector('.readout').textContent = place ? this.describe(...place) : '';
    this.refresh();
  }

  describe(layer, head) {
    const { layers, readings, readings_name: name } = this.header;
    const value = readings[layer][head], digits = value === null ? 'not finite' : value.toFixed(6);
    return `layer ${layers[layer]}, head ${head}   ${name} ${digits}   click to open it`;
  }

  choose(place) {
    if (!place) return;
    this.header.chosen = place; // seen at once; Python's answer confirms it
    this.refresh();
    this.pick(place);
  }

  key(event) {
    const steps = { ArrowUp: [0, -1], ArrowDown: [0, 1], ArrowLeft: [-1, 0], ArrowRight: [1, 0] };
    const [layer, head] = this.hover ?? this.header.chosen.map((place) => Math.max(0, place)), step = steps[event.key];
    const clip = (value, count) => Math.min(count - 1, Math.max(0, value));
    if (step) {
      const next = clip(layer + step[0], this.header.layers.length);
      this.point([next, clip(head + step[1], this.header.counts[next])]);
    }
    else if (event.key === 'Enter') this.choose([layer, head]);
    else return;
    event.preventDefault();
  }

  save(kind) {
    if (!this.header) return;
    const { title, note, name } = this.header, theme = readTheme(this.root);
    if (kind === 'column') this.arrange(COLUMN, 3, COLUMN);
    const titles = inLines(title, this.width - 8, 13, 600, theme);
    const notes = note ? inLines(note, this.width - 8, 11, 400, theme) : [];
    const below = 16 + 17 * titles.length, top = 10 + 17 * titles.length + 15 * notes.length;
    exportFigure(kind, this.width, top + this.height, theme, (pen) => {
      titles.forEach((line, at) => pen.text(line, 4, 16 + 17 * at, { size: 13, weight: 600 }));
      notes.forEach((line, at) => pen.text(line, 4, below + 15 * at, { size: 11 }));
      pen.origin(0, top);
      this.draw(pen, false);
    }, name);
    this.refresh(); // which arranges for the page again
  }

  dispose() {
    this.resizing.disconnect();
    cancelAnimationFrame(this.waiting);
  }
}

export default function (component) {
  const root = component.parentElement.querySelector('.atlas');
  if (!ATLASES.has(root)) ATLASES.set(root, new Atlas(root));
  const atlas = ATLASES.get(root);
  atlas.pick = (place) => component.setTriggerValue('picked', place);
  atlas.update(component.data).catch((fault) => {
    root.querySelector('.readout').textContent = `The atlas could not be drawn: ${fault.message}`;
    throw fault;
  });
  return () => { atlas.dispose(); ATLASES.delete(root); };
}
