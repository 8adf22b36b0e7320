/* Numbers, tokens and sentences as they stand on a canvas. */

function short(value, signed = false) {
  const digits = value === 0 ? '0' : Math.abs(value) < 1e-3 ? value.toExponential(0) : String(+value.toPrecision(2));
  return (signed && value > 0 ? '+' : '') + digits.replace('-', '\u2212');
}

/* A token as a label: control characters made visible, cut where it would not fit. */
function label(token, length = 10) {
  const shown = [...token.replace(/\n/g, '\u23ce').replace(/\t/g, '\u21e5').replace(/\p{C}/gu, '\ufffd')];
  return shown.length > length ? shown.slice(0, length - 1).join('') + '\u2026' : shown.join('');
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
