/* Lines through the scene: projected by the lens and drawn by the pen, so that an SVG holds them as vectors. What lies
 * behind or inside a glyph is drawn faint. */

const DASHES = { solid: [], dash: [9, 5], dot: [2, 4], dashdot: [9, 4, 2, 4], longdash: [15, 5], longdashdot: [15, 4, 2, 4] };
const HIDDEN = 0.28; // opacity of what a glyph hides
const SEEN_THROUGH = 1500; // glyphs above which nothing is looked for: each point asks every glyph
const SAMPLE_WIDTH = 30, LEGEND_ROW = 18;

function curveColour(pen, curve) {
  return curve.colours[pen.theme.paper.reduce((sum, c) => sum + c, 0) < 1.5 ? 1 : 0];
}

/* Names of the curves in rows that fit, one entry a name. */
function legendRows(pen, curves, width) {
  const entries = curves.filter(({ name }, k) => name && curves.findIndex((other) => other.name === name) === k);
  const rows = [];
  let x = Infinity;
  entries.forEach((curve) => {
    const room = SAMPLE_WIDTH + 8 + pen.measure(curve.name, 12) + 20;
    if (x + room > width) {
      rows.push([]);
      x = 12;
    }
    rows[rows.length - 1].push({ curve, x });
    x += room;
  });
  return rows;
}

function drawLegend(pen, header) {
  header.legend.forEach((row, k) => row.forEach(({ curve, x }) => {
    const y = header.legendTop + LEGEND_ROW * k, colour = curveColour(pen, curve);
    const end = x + SAMPLE_WIDTH;
    pen.polyline([[x, y - 4], [end - (curve.arrow ? 6 : 0), y - 4]],
      { colour, width: curve.width, dash: DASHES[curve.dash] ?? [] });
    if (curve.arrow) pen.polygon([[end, y - 4], [end - 9, y - 8], [end - 9, y]], colour);
    pen.text(curve.name, end + 8, y, { size: 12 });
  }));
}

function drawCurves(pen, data, glyphs, lens) {
  let at = 0;
  const faces = glyphs.tokens.length <= SEEN_THROUGH;
  data.header.curves.forEach((curve) => {
    const points = Array.from({ length: curve.count }, (_, k) => [...data.curves.subarray(at + 3 * k, at + 3 * k + 3)]);
    at += 3 * curve.count;
    const seen = points.map((point) => lens.project(point));
    const colour = curveColour(pen, curve);
    const dash = DASHES[curve.dash] ?? [];
    let run = [], hidden = false, walked = 0, start = 0;
    const flush = () => {
      if (run.length > 1) pen.polyline(run, { colour, width: curve.width, dash, offset: start, opacity: hidden ? HIDDEN : 1 });
      run = run.slice(-1);
      start = walked;
    };
    for (let k = 1; k < seen.length; k += 1) {
      if (!(seen[k - 1][2] > 0 && seen[k][2] > 0)) {
        flush();
        run = [];
        continue;
      }
      const middle = add(points[k - 1], add(points[k], points[k - 1], -1), 0.5);
      const behind = faces && isBehind(glyphs.instances, lens.eye, middle);
      if (behind !== hidden) flush();
      hidden = behind;
      if (!run.length) run.push(seen[k - 1].slice(0, 2));
      run.push(seen[k].slice(0, 2));
      walked += Math.hypot(seen[k][0] - seen[k - 1][0], seen[k][1] - seen[k - 1][1]);
    }
    flush();
    if (curve.arrow) drawHead(pen, seen, colour, curve.width);
  });
}

/* A triangle at the end, along the last few pixels of the line: a single step may be shorter than a pixel. */
function drawHead(pen, seen, colour, width) {
  const tip = seen[seen.length - 1];
  const long = 5 + 2.5 * width;
  const back = seen.findLast((p) => Math.hypot(p[0] - tip[0], p[1] - tip[1]) >= 0.6 * long) ?? seen[0];
  const [dx, dy] = [tip[0] - back[0], tip[1] - back[1]], length = Math.hypot(dx, dy);
  if (!(length > 0.5) || !(tip[2] > 0)) return;
  const [ux, uy] = [dx / length, dy / length], half = 0.42 * long;
  const foot = [tip[0] - long * ux, tip[1] - long * uy];
  pen.polygon([[tip[0], tip[1]], [foot[0] - half * uy, foot[1] + half * ux], [foot[0] + half * uy, foot[1] - half * ux]], colour);
}

/* Whether a glyph stands between the eye and a point, or around it. The witness counts as one. */
function isBehind(instances, eye, point) {
  const away = add(point, eye, -1);
  for (let at = 0; at < instances.length; at += FLOATS) {
    const [start, step] = toUnitSphere(instances, at, eye, away);
    const closest = -dot(start, step) / dot(step, step);
    const foot = add(start, step, closest);
    const inside = 1 - dot(foot, foot);
    if (inside > 0 && closest - Math.sqrt(inside / dot(step, step)) < 1 && closest > 0) return true;
  }
  return false;
}
