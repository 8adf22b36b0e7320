/* The ellipsoid field: what the page sees. camera.js, scene.js, pens.js and words.js stand before this file.
 *
 * Two canvases lie on each other: WebGL draws glyphs and walls, a 2-D overlay draws every word. Exports repeat both.
 * One FieldView lives as long as its canvas; new data change what it shows and never where it is seen from. */

const VIEWS = new WeakMap();
const GREY = [0.6, 0.6, 0.6]; // of a colour value that is not a number

class FieldView {
  constructor(root) {
    this.root = root;
    const find = (selector) => root.querySelector(selector);
    [this.canvas, this.overlay, this.tip, this.fault] = ['.scene', '.overlay', '.tip', '.fault'].map(find);
    this.camera = new Camera();
    this.hovered = -1;
    this.updates = 0;
    this.start();
    this.resizing = new ResizeObserver(() => this.refresh());
    this.resizing.observe(root);
    ['transitionrun', 'transitionend'].forEach((name) => // of the background: the theme has changed
      root.addEventListener(name, (event) => event.target === root && this.refresh()));
    root.querySelectorAll('button').forEach((button) =>
      button.addEventListener('click', () => this.press(button.name)));
    this.listen();
  }

  start() {
    try {
      this.scene = new Scene(this.canvas);
    } catch (error) {
      this.fail(`${error.message}, so the ellipsoids cannot be drawn here. Turn hardware acceleration on or use a `
        + 'recent Firefox, Chrome, Edge or Safari; the table and the HTML export below hold the same data.');
    }
  }

  fail(message) {
    this.fault.textContent = message;
    this.fault.style.display = 'grid';
  }

  /* ---- data ---- */

  update(bytes) {
    this.data = decode(bytes);
    const { header } = this.data;
    this.glyphs = instancesOf(this.data);
    this.camera.frame(header.box, header.witness);
    this.updates += 1;
    this.marked = true; // the selected token is emphasised until it is clicked away
    this.canvas.setAttribute('aria-label', `${header.title}. ${header.description}`);
    this.root.style.setProperty('--field-height', `${header.height}px`);
    this.scene?.upload(this.glyphs.instances);
    this.hover(-1);
    this.refresh();
  }

  /* ---- drawing ---- */

  refresh() {
    if (this.waiting || !this.data) return;
    this.waiting = requestAnimationFrame(() => {
      this.waiting = 0;
      const { width, height } = this.root.getBoundingClientRect();
      if (width && height) this.draw(width, height, Math.min(2, window.devicePixelRatio || 1));
    });
  }

  draw(width, height, ratio) {
    const theme = readTheme(this.root);
    this.overlay.width = Math.round(width * ratio);
    this.overlay.height = Math.round(height * ratio);
    const context = this.overlay.getContext('2d');
    context.scale(ratio, ratio);
    this.lens = this.render(new CanvasPen(context, theme), width, height, ratio);
    Object.assign(this.canvas.dataset, { count: this.scene ? this.glyphs.tokens.length : 0, updates: this.updates,
      camera: JSON.stringify(this.camera), title: this.data.header.title, curves: this.data.header.curves.length });
  }

  /* One picture at one size: the scene into the WebGL canvas, what ``keep`` does with it, then words by the pen. */
  render(pen, width, height, ratio, keep = () => {}) {
    const { header } = this.data;
    const stage = layOut(pen, header, width, height);
    const lens = this.camera.lens(width, height, stage);
    const box = surroundings(header, lens);
    if (this.scene && !this.scene.gl.isContextLost()) {
      const [wide, high] = [Math.round(width * ratio), Math.round(height * ratio)];
      if (this.canvas.width !== wide) this.canvas.width = wide;
      if (this.canvas.height !== high) this.canvas.height = high;
      const selected = this.marked ? this.glyphs.tokens.indexOf(header.selected) : -1;
      this.scene.draw(lens, this.camera, pen.theme, box.walls, { selected, hovered: this.hovered });
    }
    keep(this.canvas); // in the very task that drew it: later the buffer is gone
    drawAxes(pen, header, lens, width, box);
    drawCurves(pen, this.data, this.glyphs, lens);
    drawLabels(pen, this.data, this.glyphs, lens, this.marked ? header.selected : -1, stage);
    drawHeading(pen, header, width);
    drawLegend(pen, header);
    drawScale(pen, this.data, stage, height);
    return lens;
  }

  /* ---- export ---- */

  press(name) {
    if (name === 'fit') {
      this.camera.reset();
      this.refresh();
    } else this.export(name);
  }

  export(kind) {
    const { width, height } = this.root.getBoundingClientRect();
    const column = kind === 'column'; // 3.25 in of a journal, set anew at 416 px so that 11 px become 6 pt
    const size = column ? [416, 400] : [width, height];
    const ratio = kind === 'png' ? 2 : 3;
    const theme = readTheme(this.root);
    const name = `${this.data.header.name}${column ? '-column' : ''}`;
    const sheet = document.createElement('canvas');
    [sheet.width, sheet.height] = size.map((side) => Math.round(side * ratio));
    const pen = new CanvasPen(sheet.getContext('2d'), theme);
    if (kind === 'png') {
      pen.context.scale(ratio, ratio);
      this.render(pen, ...size, ratio, (canvas) => pen.context.drawImage(canvas, 0, 0, ...size));
      sheet.toBlob((blob) => save(blob, `${name}.png`));
    } else {
      const svg = this.vector(new VectorPen(...size, theme, pen), size, ratio, column);
      save(new Blob([svg], { type: 'image/svg+xml' }), `${name}.svg`);
    }
    this.refresh();
  }

  vector(pen, size, ratio, column) {
    const pixels = size.map((side) => Math.round(side * ratio)).join(' × ');
    if (column) {
      pen.root.setAttribute('width', '3.25in');
      pen.root.setAttribute('height', `${(3.25 * size[1]) / size[0]}in`);
    }
    pen.node('desc', {}, `The 3-D view is an embedded raster image of ${pixels} pixels; every word is text.`);
    this.render(pen, ...size, ratio, (canvas) => {
      pen.node('image', { x: 0, y: 0, width: size[0], height: size[1], href: canvas.toDataURL('image/png') });
    });
    pen.text(`3-D view: raster, ${pixels} px`, size[0] - 8, size[1] - 8, { size: 8, align: 'right', opacity: 0.6 });
    return new XMLSerializer().serializeToString(pen.root);
  }

  /* ---- hands ---- */

  listen() {
    const { canvas } = this;
    let grip = null;
    canvas.addEventListener('pointerdown', (event) => {
      grip = { x: event.clientX, y: event.clientY, moved: 0, pan: event.shiftKey || event.button === 2 };
      canvas.setPointerCapture(event.pointerId);
    });
    canvas.addEventListener('pointermove', (event) => {
      if (!grip) return this.hover(this.under(event), event);
      const [dx, dy] = [event.clientX - grip.x, event.clientY - grip.y];
      grip.moved += Math.abs(dx) + Math.abs(dy);
      [grip.x, grip.y] = [event.clientX, event.clientY];
      return this.move(grip.pan, dx, dy);
    });
    canvas.addEventListener('pointerup', (event) => {
      if (grip && grip.moved < 4 && event.button === 0) this.choose(this.under(event));
      grip = null;
    });
    canvas.addEventListener('pointercancel', () => { grip = null; });
    canvas.addEventListener('pointerleave', () => this.hover(-1));
    canvas.addEventListener('contextmenu', (event) => event.preventDefault());
    canvas.addEventListener('dblclick', () => this.press('fit'));
    canvas.addEventListener('wheel', (event) => {
      event.preventDefault();
      this.camera.magnify(Math.exp(-0.001 * event.deltaY));
      this.refresh();
    }, { passive: false });
    canvas.addEventListener('keydown', (event) => this.key(event));
    canvas.addEventListener('webglcontextlost', (event) => {
      event.preventDefault();
      this.fail('The graphics context was lost: the browser took it back. It returns by itself, or reload the page.');
    });
    canvas.addEventListener('webglcontextrestored', () => {
      this.fault.style.display = 'none';
      this.start();
      this.scene?.upload(this.glyphs.instances);
      this.refresh();
    });
  }

  move(pan, dx, dy) {
    if (pan) this.camera.pan(dx, dy, this.lens);
    else this.camera.orbit(dx, dy);
    this.hover(-1);
    this.refresh();
  }

  key(event) {
    const step = { ArrowLeft: [-16, 0], ArrowRight: [16, 0], ArrowUp: [0, -16], ArrowDown: [0, 16] }[event.key];
    const zoom = { '+': 1.1, '=': 1.1, '-': 1 / 1.1 }[event.key];
    if (!step && !zoom && event.key !== '0') return;
    event.preventDefault();
    if (step) this.move(event.shiftKey, ...step);
    else if (zoom) this.camera.magnify(zoom);
    else this.camera.reset();
    this.refresh();
  }

  under(event) {
    if (!this.lens) return -1;
    return pick(this.glyphs.instances, this.lens.eye, this.lens.ray(event.offsetX, event.offsetY));
  }

  choose(index) {
    if (index < 0) return;
    const token = this.glyphs.tokens[index];
    const again = token === this.data.header.selected;
    this.marked = again ? !this.marked : true;
    this.data.header.selected = token;
    if (!again) this.send('picked', token);
    this.refresh();
  }

  hover(index, event) {
    if (index !== this.hovered) {
      this.hovered = index;
      this.refresh();
    }
    this.tip.style.display = index < 0 ? 'none' : 'block';
    if (index < 0) return;
    this.tip.replaceChildren(...tipRows(this.data, this.glyphs.tokens[index]));
    const { width, height } = this.root.getBoundingClientRect();
    const room = this.tip.getBoundingClientRect();
    const left = event.offsetX + 16 + room.width > width ? event.offsetX - 12 - room.width : event.offsetX + 16;
    this.tip.style.left = `${Math.max(4, left)}px`;
    this.tip.style.top = `${Math.max(4, Math.min(event.offsetY + 12, height - room.height - 4))}px`;
  }

  dispose() {
    cancelAnimationFrame(this.waiting);
    this.resizing.disconnect();
    this.scene?.dispose();
  }
}

/* ---- the message ---- */

/* Header of four uint32: tokens n, extra columns m, length of the JSON, points p of all curves. Then float32 centres
 * (n, 3), semi-axes (n, 3, 3; each of the three vectors in turn), colour values (n), extras (m, n),
 * curves (p, 3), each with as many points as its entry in the JSON says; then 256 colours as RGB bytes; then the JSON. The bytes may start anywhere in their buffer: a copy makes the float views aligned. */
function decode(bytes) {
  const buffer = bytes.buffer.slice(bytes.byteOffset, bytes.byteOffset + bytes.byteLength);
  const [count, extras, length, points] = new Uint32Array(buffer, 0, 4);
  let offset = 16;
  const floats = (size) => new Float32Array(buffer, (offset += 4 * size) - 4 * size, size);
  const arrays = { centres: floats(3 * count), axes: floats(9 * count),
    values: floats(count), extras: Array.from({ length: extras }, () => floats(count)), curves: floats(3 * points) };
  const table = new Uint8Array(buffer, offset, 768);
  const header = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, offset + 768, length)));
  return { ...arrays, table, header };
}

/* What the graphics card gets: the tokens that are finite, and the witness last. */
function instancesOf(data) {
  const { centres, axes, values, table, header } = data;
  const tokens = [...values.keys()].filter((token) => Number.isFinite(axes[9 * token]));
  const instances = new Float32Array(FLOATS * (tokens.length + 1));
  const [low, high] = header.colour.range;
  tokens.forEach((token, index) => {
    const at = FLOATS * index;
    instances.set(centres.subarray(3 * token, 3 * token + 3), at);
    instances.set(axes.subarray(9 * token, 9 * token + 9), at + 3);
    const share = high > low ? (values[token] - low) / (high - low) : 0.5;
    const level = Math.max(0, Math.min(255, Math.round(255 * share)));
    const rgb = [...table.subarray(3 * level, 3 * level + 3)].map((byte) => byte / 255);
    instances.set(Number.isFinite(values[token]) ? rgb : GREY, at + 12);
  });
  const { centre, radius } = header.witness;
  instances.set([...centre, radius, 0, 0, 0, radius, 0, 0, 0, radius, ...GREY], FLOATS * tokens.length);
  return { tokens, instances };
}

/* The eigenvalue that made a semi-axis as long as it is. */
function eigenvalue({ axes, header }, token, m) {
  const length = Math.hypot(...axes.subarray(9 * token + 3 * m, 9 * token + 3 * m + 3)) / header.scale;
  return header.dual ? length ** 2 : length ** -2;
}

function tipRows(data, token) {
  const { header, values, extras } = data;
  const heading = document.createElement('b');
  heading.textContent = `(${token}) ${visible(header.tokens[token], 60)}`;
  const lambda = [0, 1, 2].map((m) => number(eigenvalue(data, token, m))).join(', ');
  const pairs = [[header.eigenvalues, lambda], [header.colour.title, number(values[token])],
    ...header.extras.map((name, k) => [name, number(extras[k][token])])];
  return [heading, ...pairs.map(([name, value]) => {
    const row = document.createElement('div');
    row.className = 'row';
    [name, value].forEach((string) => {
      row.append(Object.assign(document.createElement('span'), { textContent: string }));
    });
    return row;
  })];
}

export default function ellipsoidField({ data, parentElement, setTriggerValue }) {
  const root = parentElement.querySelector('.field');
  if (!VIEWS.has(root)) VIEWS.set(root, new FieldView(root));
  const view = VIEWS.get(root);
  view.send = setTriggerValue;
  view.update(data instanceof Uint8Array ? data : new Uint8Array(data));
  return () => {
    VIEWS.delete(root);
    view.dispose();
  };
}
