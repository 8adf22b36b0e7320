/* The cells of two maps and of their difference over a rectangle of tokens, each cell a bin of `factor` tokens a side.
 *
 * A cell is Infinity where masked (never drawn), NaN where the model's number was not finite (drawn in MAGENTA). */

class Sheet {
  constructor(codes, header, top, left, high, wide) {
    const { factor, causal, peaks, steps } = header;
    Object.assign(this, { factor, top, left, high, wide, peaks, steps });
    this.rows = Math.ceil(high / factor);
    this.columns = Math.ceil(wide / factor);
    const maps = decode(codes, this.rows, this.columns, causal, peaks, steps);
    maps[2] ??= minus(maps[1], maps[0]);
    this.levels = maps.map((values) => ({ '0,0': { rows: this.rows, columns: this.columns, values } }));
    this.recolour();
  }

  /* Pictures are made anew: the colours have changed. */
  recolour() {
    this.images = [{}, {}, {}];
  }

  /* Whether a view lies inside, and the cells are no coarser than `factor`. */
  covers({ x0, y0, span, wide }, factor) {
    return this.factor <= factor && x0 >= this.left && y0 >= this.top
      && x0 + wide <= this.left + this.wide && y0 + span <= this.top + this.high;
  }

  /* The cell of a map (2 is the difference) in which query i and key j lie. */
  at(side, i, j) {
    const row = Math.floor((i - this.top) / this.factor), column = Math.floor((j - this.left) / this.factor);
    return this.levels[side]['0,0'].values[row * this.columns + column];
  }

  /* By how much both maps' codes may be off there, together. */
  error(i, j) {
    return [0, 1].reduce((sum, side) => sum + Math.sqrt(this.at(side, i, j) * this.peaks[side]) / (this.steps - 1), 0);
  }

  /* The level of the max-pooled pyramid whose cell is at least one device pixel each way, as an image; given are the
   * device pixels of a token. `factors` are the tokens of one of its cells, down and across. */
  picture(bend, pixelsPerRow, pixelsPerColumn) {
    const halvings = (pixels, count) => Math.min(Math.ceil(Math.log2(count)), Math.max(0, Math.ceil(-Math.log2(pixels * this.factor))));
    const down = halvings(pixelsPerRow, this.rows), across = halvings(pixelsPerColumn, this.columns), name = `${down},${across}`;
    const images = this.images[bend.side];
    images[name] ??= colourise(this.level(bend.side, down, across), bend);
    return { ...images[name], factors: [this.factor * 2 ** down, this.factor * 2 ** across] };
  }

  level(side, down, across) {
    const levels = this.levels[side], by = [down >= across ? 1 : 0, across >= down ? 1 : 0];
    levels[`${down},${across}`] ??= halve(this.level(side, down - by[0], across - by[1]), ...by);
    return levels[`${down},${across}`];
  }
}

/* Codes 0..steps are (code / steps)^2 of the map's peak; of a third, signed map steps / 2 is zero. 65534 is masked, 65535
 * not finite. High bytes first, then low bytes; of a causal map the lower triangle. */
function decode(codes, rows, columns, causal, peaks, steps) {
  const count = causal ? (rows * (rows + 1)) / 2 : rows * columns;
  const table = new Float32Array(65536);
  return peaks.map((peak, side) => {
    for (let code = 0; code <= steps; code++) {
      const root = side < 2 ? code / steps : (2 * code) / steps - 1;
      table[code] = root * Math.abs(root) * peak;
    }
    table[65534] = Infinity;
    table[65535] = NaN;
    const values = new Float32Array(rows * columns);
    let from = 2 * count * side;
    for (let i = 0; i < rows; i++) {
      const start = i * columns, end = start + (causal ? i + 1 : columns);
      for (let at = start; at < end; at++, from++) values[at] = table[(codes[from] << 8) | codes[from + count]];
      values.fill(Infinity, end, start + columns);
    }
    return values;
  });
}

function minus(right, left) {
  const values = new Float32Array(right.length);
  for (let at = 0; at < values.length; at++) values[at] = right[at] === Infinity ? Infinity : right[at] - left[at];
  return values;
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

function colourise({ rows, columns, values }, { ceiling, diverging, colour, table }) {
  const canvas = document.createElement('canvas');
  Object.assign(canvas, { width: columns, height: rows });
  const context = canvas.getContext('2d');
  const image = context.createImageData(columns, rows);
  const words = new Uint32Array(image.data.buffer);
  const word = ([red, green, blue]) => ((255 << 24) | (blue << 16) | (green << 8) | red) >>> 0;
  const packed = Uint32Array.from(table, word), bad = word(MAGENTA);
  let painted = 0;
  for (let at = 0; at < values.length; at++) {
    const value = values[at];
    if (value === Infinity) continue; // masked: the page shows through
    words[at] = Number.isNaN(value) ? bad : packed[Math.round(1023 * shade(value, ceiling, colour, diverging))];
    painted += 1;
  }
  context.putImageData(image, 0, 0);
  return { canvas, painted };
}
