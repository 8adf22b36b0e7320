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
