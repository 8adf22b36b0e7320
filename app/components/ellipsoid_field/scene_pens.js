/* Two pens with one vocabulary: the overlay and the PNG are drawn by CanvasPen, the SVG by VectorPen, by the same code.
 * Text only ever goes to fillText or textContent, so a token cannot be markup. Lengths are CSS pixels. */

const PLAIN = { size: 12, weight: 400, align: 'left', opacity: 1 };

class CanvasPen {
  constructor(context, theme) {
    Object.assign(this, { context, theme });
    context.lineJoin = 'round';
  }
  font(size, weight) {
    return `${weight} ${size}px ${this.theme.font}`;
  }
  measure(string, size = 12, weight = 400) {
    this.context.font = this.font(size, weight);
    return this.context.measureText(string).width;
  }
  text(string, x, y, style = {}) {
    const { size, weight, align, colour, opacity } = { ...PLAIN, colour: this.theme.text, ...style };
    const { context } = this;
    context.font = this.font(size, weight);
    context.textAlign = align;
    context.globalAlpha = opacity;
    context.strokeStyle = this.theme.background; // a halo: legible on whatever lies behind
    context.lineWidth = 3;
    context.strokeText(string, x, y);
    context.fillStyle = colour;
    context.fillText(string, x, y);
    context.globalAlpha = 1;
  }
  line(x1, y1, x2, y2, opacity = 1) {
    const { context } = this;
    context.globalAlpha = opacity;
    context.strokeStyle = this.theme.text;
    context.lineWidth = 1;
    context.beginPath();
    context.moveTo(x1, y1);
    context.lineTo(x2, y2);
    context.stroke();
    context.globalAlpha = 1;
  }
  polyline(points, { colour, width = 2, dash = [], offset = 0, opacity = 1 }) {
    const { context } = this;
    context.globalAlpha = opacity;
    context.strokeStyle = colour;
    context.lineWidth = width;
    context.setLineDash(dash);
    context.lineDashOffset = offset;
    context.beginPath();
    points.forEach(([x, y], k) => (k ? context.lineTo(x, y) : context.moveTo(x, y)));
    context.stroke();
    context.setLineDash([]);
    context.globalAlpha = 1;
  }
  polygon(points, colour) {
    const { context } = this;
    context.fillStyle = colour;
    context.beginPath();
    points.forEach(([x, y], k) => (k ? context.lineTo(x, y) : context.moveTo(x, y)));
    context.fill();
  }
  box(x, y, width, height, fill) {
    this.context.fillStyle = fill;
    this.context.fillRect(x, y, width, height);
  }
  gradient(x, y, width, height, stops) {
    const gradient = this.context.createLinearGradient(x, 0, x + width, 0);
    stops.forEach((colour, k) => gradient.addColorStop(k / (stops.length - 1), colour));
    this.box(x, y, width, height, gradient);
  }
}

class VectorPen {
  constructor(width, height, theme, measuring) {
    Object.assign(this, { theme, measuring });
    this.root = this.node('svg', { width, height, viewBox: `0 0 ${width} ${height}`, 'font-family': theme.font });
  }
  node(name, attributes, string) {
    const element = document.createElementNS('http://www.w3.org/2000/svg', name);
    Object.entries(attributes).forEach(([key, value]) => element.setAttribute(key, value));
    if (string !== undefined) element.textContent = string;
    this.root?.append(element);
    return element;
  }
  measure(...request) {
    return 1.13 * this.measuring.measure(...request); // another font, a wider one, may stand in for the page's
  }
  text(string, x, y, style = {}) {
    const { size, weight, align, colour, opacity } = { ...PLAIN, colour: this.theme.text, ...style };
    const anchor = { left: 'start', center: 'middle', right: 'end' }[align];
    this.node('text', { x, y, 'font-size': size, 'font-weight': weight, 'text-anchor': anchor, fill: colour, opacity,
      stroke: this.theme.background, 'stroke-width': 3, 'paint-order': 'stroke', 'stroke-linejoin': 'round' }, string);
  }
  line(x1, y1, x2, y2, opacity = 1) {
    this.node('line', { x1, y1, x2, y2, stroke: this.theme.text, opacity });
  }
  polyline(points, { colour, width = 2, dash = [], offset = 0, opacity = 1 }) {
    this.node('polyline', { points: points.map((point) => point.join(',')).join(' '), fill: 'none', stroke: colour,
      'stroke-width': width, 'stroke-dasharray': dash.join(' ') || 'none', 'stroke-dashoffset': offset, opacity,
      'stroke-linejoin': 'round' });
  }
  polygon(points, colour) {
    this.node('polygon', { points: points.map((point) => point.join(',')).join(' '), fill: colour });
  }
  box(x, y, width, height, fill) {
    this.node('rect', { x, y, width, height, fill });
  }
  gradient(x, y, width, height, stops) {
    const id = `scale-${Math.random().toString(36).slice(2)}`;
    const gradient = this.node('linearGradient', { id });
    stops.forEach((colour, k) => {
      gradient.append(this.node('stop', { offset: k / (stops.length - 1), 'stop-color': colour }));
    });
    this.box(x, y, width, height, `url(#${id})`);
  }
}

/* The page's colours, also as numbers for the shaders. */
function sceneTheme(element) {
  const theme = { ...readTheme(element), accent: VERMILION };
  return { ...theme, paper: channels(theme.background), ink: channels(theme.text), mark: channels(theme.accent) };
}

/* A CSS colour, in whatever notation, as three numbers from 0 to 1. */
const KNOWN = new Map();
function channels(colour) {
  if (!KNOWN.has(colour)) KNOWN.set(colour, painted(colour));
  return KNOWN.get(colour);
}

function painted(colour) {
  const context = new OffscreenCanvas(1, 1).getContext('2d', { willReadFrequently: true });
  context.fillStyle = colour;
  context.fillRect(0, 0, 1, 1);
  return [...context.getImageData(0, 0, 1, 1).data.slice(0, 3)].map((byte) => byte / 255);
}

function wrap(pen, string, width, size) {
  const lines = [];
  let line = '';
  string.split(' ').forEach((word) => {
    const longer = line ? `${line} ${word}` : word;
    if (line && pen.measure(longer, size) > width) {
      lines.push(line);
      line = word;
    } else line = longer;
  });
  return line ? [...lines, line] : lines;
}

/* A number as a reader wants it: four significant digits, no trailing zeros, a real minus sign. */
function number(value, digits = 4) {
  if (!Number.isFinite(value)) return 'not finite';
  const plain = Math.abs(value) >= 1e5 || (value && Math.abs(value) < 1e-3);
  return (plain ? value.toExponential(2) : String(+value.toPrecision(digits))).replace('-', '\u2212');
}

/* Blank and control characters made visible, and the text cut where it would not fit. */
function visible(token, length = 24) {
  const blanks = { ' ': '\u2423', '\n': '\u21b5', '\t': '\u21e5' };
  const named = token.replace(/[ \n\t]/g, (blank) => blanks[blank]).replace(/\p{C}/gu, '\ufffd');
  const characters = [...named];
  return characters.length > length ? `${characters.slice(0, length - 1).join('')}\u2026` : named;
}
