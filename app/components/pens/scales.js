/* From a number to its colour, and the bar that shows how. */

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
