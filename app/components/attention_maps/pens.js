/* Two pens with one vocabulary: the screen and the PNG are drawn by CanvasPen, the SVG by VectorPen, by the same code.
 * Lengths are CSS pixels. Text is only ever passed to fillText or textContent, so a token cannot be markup. */

class CanvasPen {
  constructor(canvas, width, height, ratio, theme) {
    canvas.width = Math.max(1, Math.round(width * ratio));
    canvas.height = Math.max(1, Math.round(height * ratio));
    this.ratio = ratio;
    this.theme = theme;
    this.context = canvas.getContext('2d');
    this.origin(0, 0);
    this.rect(0, 0, width, height, theme.background);
  }
  origin(x, y) {
    this.context.setTransform(this.ratio, 0, 0, this.ratio, x * this.ratio, y * this.ratio);
  }
  rect(x, y, width, height, fill, opacity = 1) {
    this.context.globalAlpha = opacity;
    this.context.fillStyle = fill;
    this.context.fillRect(x, y, width, height);
    this.context.globalAlpha = 1;
  }
  line(points, stroke, width = 1, fill = null) {
    const path = new Path2D();
    points.forEach(([x, y], index) => (index ? path.lineTo(x, y) : path.moveTo(x, y)));
    this.context.lineWidth = width;
    if (fill) { this.context.fillStyle = fill; this.context.fill(path); }
    if (stroke) { this.context.strokeStyle = stroke; this.context.stroke(path); }
  }
  ring(x, y, radius, stroke, width) {
    this.context.beginPath();
    this.context.arc(x, y, radius, 0, 2 * Math.PI);
    this.context.strokeStyle = stroke;
    this.context.lineWidth = width;
    this.context.stroke();
  }
  text(string, x, y, { size = 11, align = 'left', weight = 400, fill = this.theme.text, turn = 0, opacity = 1 } = {}) {
    const context = this.context;
    context.save();
    context.translate(x, y);
    context.rotate((turn * Math.PI) / 180);
    context.font = `${weight} ${size}px ${this.theme.font}`;
    context.textAlign = align;
    context.globalAlpha = opacity;
    context.fillStyle = fill;
    context.fillText(string, 0, 0);
    context.restore();
  }
  image(source, [sx, sy, sw, sh], x, y, width, height) {
    this.context.imageSmoothingEnabled = false; // a cell is a cell: nothing is averaged
    this.context.drawImage(source, sx, sy, sw, sh, x, y, width, height);
  }
}

class VectorPen {
  constructor(width, height, theme) {
    this.theme = theme;
    this.root = this.node('svg', { width, height, viewBox: `0 0 ${width} ${height}`, 'font-family': theme.font });
    this.origin(0, 0);
    this.rect(0, 0, width, height, theme.background);
  }
  node(name, attributes, text) {
    const element = document.createElementNS('http://www.w3.org/2000/svg', name);
    Object.entries(attributes).forEach(([key, value]) => element.setAttribute(key, value));
    if (text !== undefined) element.textContent = text;
    if (this.group) this.group.append(element);
    return element;
  }
  origin(x, y) {
    this.group = null;
    const group = this.node('g', { transform: `translate(${x} ${y})` });
    this.root.append(group);
    this.group = group;
  }
  rect(x, y, width, height, fill, opacity = 1) {
    this.node('rect', { x, y, width, height, fill, 'fill-opacity': opacity });
  }
  line(points, stroke, width = 1, fill = null) {
    const list = points.map(([x, y]) => `${x.toFixed(2)},${y.toFixed(2)}`).join(' ');
    this.node('polyline', { points: list, stroke: stroke ?? 'none', 'stroke-width': width, fill: fill ?? 'none' });
  }
  ring(x, y, radius, stroke, width) {
    this.node('circle', { cx: x, cy: y, r: radius, stroke, 'stroke-width': width, fill: 'none' });
  }
  text(string, x, y, { size = 11, align = 'left', weight = 400, fill = this.theme.text, turn = 0, opacity = 1 } = {}) {
    const anchor = { left: 'start', center: 'middle', right: 'end' }[align];
    this.node('text', { transform: `translate(${x} ${y}) rotate(${turn})`, 'font-size': size, 'font-weight': weight,
      'text-anchor': anchor, fill, 'fill-opacity': opacity }, string);
  }
  image(source, [sx, sy, sw, sh], x, y, width, height) {
    const copy = document.createElement('canvas');
    copy.width = Math.ceil(width * 3);
    copy.height = Math.ceil(height * 3);
    const context = copy.getContext('2d');
    context.imageSmoothingEnabled = false;
    context.drawImage(source, sx, sy, sw, sh, 0, 0, copy.width, copy.height);
    this.node('image', { x, y, width, height, href: copy.toDataURL('image/png'), 'image-rendering': 'pixelated' });
  }
}

const VERMILION = '#d55e00'; // Okabe and Ito's: seen on every colour of both scales, and on either page

/* The colours and fonts that Streamlit's theme gives to components, read afresh so that light and dark both work. */
function readTheme(element) {
  const style = getComputedStyle(element);
  const read = (name, otherwise) => style.getPropertyValue(name).trim() || otherwise;
  return {
    background: read('--st-background-color', '#ffffff'),
    text: read('--st-text-color', '#31333f'),
    border: read('--st-border-color', '#d3d4d9'),
    accent: read('--st-primary-color', '#d55e00'),
    font: read('--st-font', 'sans-serif').replaceAll('"', "'"),
  };
}

/* 1,024 colours between the stops of a colour scale, as [r, g, b]; stops are [position, '#rrggbb']. */
function colourTable(stops) {
  const rgb = stops.map(([at, hex]) => [at, [1, 3, 5].map((k) => parseInt(hex.slice(k, k + 2), 16))]);
  return Array.from({ length: 1024 }, (_, index) => {
    const t = index / 1023;
    const upper = Math.max(1, rgb.findIndex(([at]) => at >= t));
    const [[from, low], [to, high]] = [rgb[upper - 1], rgb[upper]];
    return low.map((channel, k) => Math.round(channel + ((high[k] - channel) * (t - from)) / (to - from)));
  });
}

/* From a value to [0, 1] and back, named on the figure. A diverging scale applies it to the magnitude. */
const FLOOR = 1e-4; // of the ceiling: where the log scale ends
const COLOURS = {
  linear: { to: (t) => t, name: 'linear colour' },
  sqrt: { to: (t) => Math.sqrt(t), name: 'square-root colour' },
  log: { to: (t) => Math.max(0, 1 + Math.log10(Math.max(t, FLOOR)) / 4), name: 'log colour, floor 1e-4 of the ceiling' },
};
function shade(value, ceiling, colour, diverging) {
  const t = COLOURS[colour].to(Math.min(1, Math.abs(value) / ceiling));
  return diverging ? 0.5 + 0.5 * Math.sign(value) * t : t;
}

/* A horizontal colour bar with ticks where they fit. */
function drawBar(pen, { x, y, width, table, ceiling, colour, diverging, title }) {
  const strip = document.createElement('canvas');
  strip.width = table.length;
  strip.height = 1;
  const pixels = strip.getContext('2d').createImageData(table.length, 1);
  table.forEach((rgb, index) => pixels.data.set([...rgb, 255], 4 * index));
  strip.getContext('2d').putImageData(pixels, 0, 0);
  pen.image(strip, [0, 0, table.length, 1], x, y, width, 7);
  const decades = [0, -1, -2, -3, -4].flatMap((power) => [1, 0.5, 0.2].map((digit) => digit * 10 ** power));
  const wanted = [ceiling, 0, ...decades.filter((value) => value < ceiling && value > FLOOR * ceiling)];
  const placed = [];
  for (const value of diverging ? wanted.flatMap((one) => [one, -one]) : wanted) {
    const at = x + width * shade(value, ceiling, colour, diverging);
    if (placed.some((other) => Math.abs(other - at) < (diverging ? 40 : 30))) continue;
    placed.push(at);
    pen.line([[at, y + 7], [at, y + 10]], pen.theme.text);
    const lowest = colour === 'log' && value === 0 && !diverging;
    const label = lowest ? `\u2264 ${short(FLOOR * ceiling)}` : short(value, diverging);
    const align = at > x + width - 12 ? 'right' : at < x + 12 ? 'left' : 'center';
    pen.text(label, at, y + 20, { size: 10, align });
  }
  pen.text(`${title} \u00b7 ${diverging && colour !== 'linear' ? 'signed ' : ''}${COLOURS[colour].name}`, x, y + 33,
    { size: 10, opacity: 0.75 });
}

function short(value, signed = false) {
  const digits = value === 0 ? '0' : Math.abs(value) < 1e-3 ? value.toExponential(0) : String(+value.toPrecision(2));
  return (signed && value > 0 ? '+' : '') + digits.replace('-', '\u2212');
}

/* A token as a label: control characters made visible, cut where it would not fit. */
function label(token, length = 10) {
  const shown = [...token.replace(/\n/g, '\u23ce').replace(/\t/g, '\u21e5').replace(/\p{C}/gu, '\ufffd')];
  return shown.length > length ? shown.slice(0, length - 1).join('') + '\u2026' : shown.join('');
}

/* The header and the rest of a message: four bytes of length, JSON, bytes. The copy makes offsets aligned. */
function unpack(data) {
  const bytes = data instanceof Uint8Array ? data : new Uint8Array(data);
  const size = new DataView(bytes.buffer, bytes.byteOffset).getUint32(0, true);
  return [JSON.parse(new TextDecoder().decode(bytes.subarray(4, 4 + size))), bytes.slice(4 + size)];
}

async function inflate(bytes) {
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream('deflate'));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

function save(blob, name) {
  const anchor = document.createElement('a');
  anchor.href = URL.createObjectURL(blob);
  anchor.download = name;
  anchor.click();
  setTimeout(() => URL.revokeObjectURL(anchor.href), 1000);
}

/* A text as lines that are no wider than the room, in the theme's font or one a little wider. */
function inLines(string, room, size, weight, theme) {
  const context = document.createElement('canvas').getContext('2d');
  context.font = `${weight} ${size}px ${theme.font}`;
  const lines = [''];
  for (const word of string.split(/\s+/)) {
    const longer = lines.at(-1) ? `${lines.at(-1)} ${word}` : word;
    if (lines.at(-1) && 1.1 * context.measureText(longer).width > room) lines.push(word);
    else lines[lines.length - 1] = longer;
  }
  return lines;
}

const COLUMN = 360; // CSS pixels that become 3.25 in of a journal's column: 11 px are then 7 pt

/* Draw a figure with either pen and save it: "svg", "column" (an SVG of 3.25 in), or "png", which has three device
 * pixels a CSS pixel, for print. */
function exportFigure(kind, width, height, theme, draw, name) {
  if (kind !== 'png') {
    const pen = new VectorPen(width, height, theme), column = kind === 'column';
    if (column) {
      pen.root.setAttribute('width', '3.25in');
      pen.root.setAttribute('height', `${((3.25 * height) / width).toFixed(3)}in`);
    }
    draw(pen);
    const file = `${name}${column ? '-column' : ''}.svg`;
    save(new Blob([new XMLSerializer().serializeToString(pen.root)], { type: 'image/svg+xml' }), file);
  } else {
    const canvas = document.createElement('canvas');
    draw(new CanvasPen(canvas, width, height, 3, theme));
    canvas.toBlob((blob) => save(blob, `${name}.png`));
  }
}
