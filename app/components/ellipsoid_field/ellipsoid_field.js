/* The ellipsoid field: what the page sees. Before this file stand glyphs.js (what a message holds),
 * camera.js, scene.js, scene_pens.js, words.js, curves.js and gestures.js.
 *
 * Two canvases lie on each other: WebGL draws glyphs and walls, a 2-D overlay draws every word. Exports repeat both.
 * One FieldView lives as long as its canvas; new data change what it shows and never where it is seen from. */

const VIEWS = new WeakMap();

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
    listen(this);
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
    const theme = sceneTheme(this.root);
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
    const theme = sceneTheme(this.root);
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

  move(pan, dx, dy) {
    if (pan) this.camera.pan(dx, dy, this.lens);
    else this.camera.orbit(dx, dy);
    this.hover(-1);
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
