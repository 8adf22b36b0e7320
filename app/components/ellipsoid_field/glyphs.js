/* What a message holds, and what becomes of it: glyphs for the graphics card, rows of the tip. */

const GREY = [0.6, 0.6, 0.6]; // of a colour value that is not a number

/* Header of four uint32: tokens n, extra columns m, length of the JSON, points p of all curves. Then float32 centres
 * (n, 3), semi-axes (n, 3, 3; each of the three vectors in turn), colour values (n), extras (m, n),
 * curves (p, 3), each with as many points as its entry in the JSON says; then 256 colours as RGB bytes; then the JSON.
 * The bytes may start anywhere in their buffer: a copy makes the float views aligned. */
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
