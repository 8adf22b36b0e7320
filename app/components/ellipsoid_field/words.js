/* Every word and line around the glyphs, through either pen: heading, walls, axes, token labels, colour bar. */

const TITLE = 15, SMALL = 12, TINY = 11;

/* Where the scene goes: below the heading, above the colour bar. The heading's lines and the
 * legend's rows are kept for drawHeading and drawLegend. */
function layOut(pen, header, width, height) {
  header.lines = wrap(pen, header.description, width - 24, SMALL);
  header.legend = legendRows(pen, header.curves, width - 8);
  const lines = 30 + (header.note ? 17 : 0) + 15 * header.lines.length;
  header.legendTop = lines + 17;
  const top = lines + LEGEND_ROW * header.legend.length;
  const margin = Math.min(60, 0.1 * width); // for ticks and names of the axes
  return { x: margin, y: top + 22, width: width - 2 * margin, height: Math.max(60, height - top - 114) };
}

function drawHeading(pen, header, width) {
  pen.text(header.title, 12, 22, { size: TITLE, weight: 600 });
  let y = 39;
  if (header.note) {
    pen.text(header.note, 12, y, { size: SMALL, weight: 600, colour: pen.theme.accent });
    y += 17;
  }
  header.lines.forEach((line, index) => pen.text(line, 12, y + 15 * index, { size: SMALL, opacity: 0.8 }));
}

function drawScale(pen, { table, header }, stage, height) {
  const { title, range, missing } = header.colour;
  const [x, y, width] = [12, height - 34, Math.min(230, 0.55 * stage.width)];
  const stops = Array.from({ length: 18 }, (_, k) => `rgb(${table.slice(45 * k, 45 * k + 3).join(' ')})`); // each 15th
  pen.text(title, x, y - 6, { size: SMALL, weight: 600 });
  pen.gradient(x, y, width, 9, stops);
  [[0, 'left'], [0.5, 'center'], [1, 'right']].forEach(([share, align]) => {
    const value = range[0] + share * (range[1] - range[0]), small = 1e-9 * Math.max(...range.map(Math.abs));
    pen.text(number(Math.abs(value) < small ? 0 : value, 3), x + share * width, y + 22, { size: TINY, align });
  });
  if (missing) {
    pen.box(x + width + 14, y, 9, 9, 'rgb(153 153 153)');
    pen.text(`${missing} not a number`, x + width + 28, y + 9, { size: TINY });
  }
}

/* The three walls behind the glyphs, ruled at round numbers that are equally far apart on all axes. */
function surroundings({ box: [low, high] }, lens) {
  const middle = low.map((l, k) => (l + high[k]) / 2);
  const behind = middle.map((m, k) => (lens.eye[k] > m ? low[k] : high[k]));
  const before = middle.map((_, k) => low[k] + high[k] - behind[k]);
  const extent = Math.max(...low.map((l, k) => high[k] - l));
  const decade = 10 ** Math.floor(Math.log10(extent / 7));
  const step = decade * [1, 2, 5, 10].find((digit) => extent / (digit * decade) <= 7);
  const ticks = low.map((l, k) => {
    const first = Math.ceil(l / step - 1e-9);
    const count = Math.max(0, Math.floor(high[k] / step + 1e-9) - first + 1);
    return Array.from({ length: count }, (_, i) => (first + i) * step);
  });
  const [grid, frame] = [[], []];
  [[0, 1, 2], [1, 2, 0], [2, 0, 1]].forEach(([wall, a, b]) => {
    [[a, b], [b, a]].forEach(([along, across]) => {
      const rule = (at) => [low, high].map((end) => {
        const point = [];
        [point[wall], point[along], point[across]] = [behind[wall], end[along], at];
        return point;
      });
      ticks[across].forEach((at) => grid.push(...rule(at)));
      frame.push(...rule(low[across]), ...rule(high[across]));
    });
  });
  return { walls: [{ points: grid, strength: 0.1 }, { points: frame, strength: 0.3 }], behind, before, middle, ticks };
}

/* Each axis is named along an outer edge of the walls, away from the middle of the picture. */
function drawAxes(pen, header, lens, width, { behind, before, middle, ticks }) {
  const [low, high] = header.box;
  const at = (axis, value, point) => point.map((x, k) => (k === axis ? value : x));
  const left = (p, q) => (lens.project(at(2, middle[2], p))[0] < lens.project(at(2, middle[2], q))[0] ? p : q);
  const edges = [[0, before[1], behind[2]], [before[0], 0, behind[2]],
    left([before[0], behind[1], 0], [behind[0], before[1], 0])];
  const heart = lens.project(middle);
  edges.forEach((edge, axis) => {
    const project = (value) => lens.project(at(axis, value, edge));
    const [start, end, half] = [low[axis], high[axis], middle[axis]].map(project);
    const along = [end[0] - start[0], end[1] - start[1]];
    const length = Math.hypot(...along);
    if (length < 30 || half[2] <= 0) return;
    let away = [-along[1] / length, along[0] / length];
    if (away[0] * (half[0] - heart[0]) + away[1] * (half[1] - heart[1]) < 0) away = away.map((x) => -x);
    const align = Math.abs(away[0]) < 0.35 ? 'center' : away[0] < 0 ? 'right' : 'left';
    const every = Math.ceil((26 * ticks[axis].length) / length);
    ticks[axis].filter((_, k) => k % every === 0).forEach((value) => {
      const [x, y] = project(value);
      pen.line(x, y, x + 4 * away[0], y + 4 * away[1], 0.5);
      pen.text(number(value, 3), x + 9 * away[0], y + 9 * away[1] + 4, { size: TINY, align, opacity: 0.7 });
    });
    // The upright axis is named above its upper end: beside it, the name would need a wide margin.
    const upper = start[1] < end[1] ? start : end;
    const [x, y, side] = axis === 2 ? [upper[0], upper[1] - 12, 'center']
      : [half[0] + 34 * away[0], half[1] + 26 * away[1] + 4, align];
    const room = pen.measure(header.axes[axis], SMALL);
    const lead = { left: 0, center: room / 2, right: room }[side];
    const inside = Math.max(lead + 8, Math.min(width - 8 - room + lead, x));
    pen.text(header.axes[axis], inside, y, { size: SMALL, align: side });
  });
  const { centre, radius } = header.witness;
  const [x, y, depth] = lens.project(centre);
  const above = y - (lens.focal * radius) / depth - 6;
  pen.text(header.witness.label, x, above, { size: TINY, align: 'center', opacity: 0.85 });
}

/* Rings around marked tokens; labels where there is room, near tokens first, the selected one and marked ones always. A label that lies on no other label and no
 * glyph stands beside its own, or farther off at the end of a thin line; one that finds no place is left to the tip. */
function drawLabels(pen, { header, centres, axes }, glyphs, lens, selected, stage) {
  const places = glyphs.tokens.map((token) => {
    const [x, y, depth] = lens.project(centres.subarray(3 * token, 3 * token + 3));
    const vector = (k) => axes.subarray(9 * token + 3 * k, 9 * token + 3 * k + 3);
    const reach = (side) => Math.hypot(...[0, 1, 2].map((k) => dot(vector(k), side))) * (lens.focal / depth);
    return { token, x, y, depth, wide: reach(lens.right), high: reach(lens.up) };
  }).filter(({ depth }) => depth > 0);
  const marked = new Set(header.marked);
  places.filter(({ token }) => marked.has(token)).forEach(({ x, y, wide, high }) => {
    const turn = Array.from({ length: 37 }, (_, k) => (k * Math.PI) / 18);
    const ring = turn.map((a) => [x + (wide + 4) * Math.cos(a), y + (high + 4) * Math.sin(a)]);
    pen.polyline(ring, { colour: MARK, width: 2 });
  });
  const first = ({ token }) => (token === selected) * 2 + marked.has(token);
  const named = places.filter((place) => header.labels || first(place));
  named.sort((a, b) => first(b) - first(a) || a.depth - b.depth);
  const depths = named.map(({ depth }) => depth);
  const [near, far] = [Math.min(...depths), Math.max(...depths)];
  const sphere = witnessOnPage(pen, header, lens);
  const discs = [...places, sphere.disc], taken = [sphere.label];
  const apart = ([l, t, r, b]) => l > 4 && r < 2 * stage.x + stage.width - 4
    && !taken.some((other) => l < other[2] && r > other[0] && t < other[3] && b > other[1]);
  const bare = ([l, t, r, b]) => !discs.some(({ x, y, wide, high }) => // no glyph's ellipse reaches into the box
    Math.hypot((between(x, l, r) - x) / wide, (between(y, t, b) - y) / high) < 0.95);
  named.forEach((place) => {
    const chosen = place.token === selected;
    const string = visible(header.tokens[place.token], chosen ? 24 : 14);
    const style = { size: SMALL, weight: chosen ? 700 : 500 };
    const spots = spotsAround(place, pen.measure(string, style.size, style.weight));
    const vacant = spots.filter(({ box }) => apart(box));
    const free = vacant.find(({ box }) => bare(box)) ?? (first(place) ? vacant[0] ?? spots[0] : null);
    if (!free) return;
    taken.push(free.box);
    const opacity = chosen ? 1 : 1 - 0.5 * ((place.depth - near) / (far - near || 1));
    if (free.lead) pen.line(...free.lead, 0.5 * opacity);
    pen.text(string, free.box[0], free.box[3] - 3, { ...style, opacity, colour: chosen ? pen.theme.accent : pen.theme.text });
  });
}

const between = (value, low, high) => Math.min(high, Math.max(low, value));

/* Boxes for a label of one line around a glyph's ellipse: eight that touch it, then eight farther off with a line. */
function spotsAround({ x, y, wide, high }, width) {
  const tall = 14, slant = Math.SQRT1_2;
  const around = [[1, 0], [-1, 0], [0, -1], [0, 1], [slant, -slant], [slant, slant], [-slant, -slant], [-slant, slant]];
  return [4, 16, 28].flatMap((gap) => around.map(([right, down]) => {
    const edge = [x + right * wide, y + down * high];
    const [px, py] = [edge[0] + right * gap, edge[1] + down * gap];
    const left = px - width * (1 - Math.sign(right)) / 2, top = py - tall * (1 - Math.sign(down)) / 2;
    return { box: [left, top, left + width, top + tall], lead: gap > 4 ? [...edge, px, py] : null };
  }));
}

/* Where the unit sphere and its name are drawn. */
function witnessOnPage(pen, { witness: { centre, radius, label } }, lens) {
  const [x, y, depth] = lens.project(centre);
  const reach = (lens.focal * radius) / depth, half = pen.measure(label, TINY) / 2, base = y - reach - 6;
  return { disc: { x, y, wide: reach, high: reach }, label: [x - half, base - 11, x + half, base + 3] };
}
