/* What is said of the maps, and of the cell under the cursor. */

/* What the legend says of the marks on the maps, a list. */
function legendOf({ tokens, numbers, selected, marked, expected, expected_name: name, not_finite: broken }) {
  const parts = [];
  if (expected.length) parts.push(`\u25cb ${name}`);
  if (selected !== null) parts.push(`\u25b6 selected token: (${numbers[selected]}) ${label(tokens[selected], 24)}`);
  if (marked.length) parts.push(`\u25b6 ${marked.length} marked`);
  if (broken) parts.push(`${broken} cells are not finite, drawn in magenta`);
  return parts;
}

/* What was reduced in the picture that is seen, in words. */
function reduced(view) {
  const [down, across] = view.factors;
  if (Math.max(down, across) === 1) return view.header.factor > 1 ? 'exact cells' : '';
  const closer = view.sheet.factor > 1 && view.header.tiles ? '; zoom in for exact cells' : '';
  return `each ${view.sheet.factor > 1 ? 'cell' : 'pixel'} is the maximum over ${down} \u00d7 ${across} token pairs${closer}`;
}

/* A cell's numbers, and how exact they are. */
function describeCell(view, i, j) {
  const { tokens, numbers, keys, key_numbers: keyNumbers, titles, causal } = view.header;
  const where = `query (${numbers[i]}) ${label(tokens[i], 24)}   key (${keyNumbers[j]}) ${label(keys[j], 24)}`;
  if (causal && j > i) return `${where}\nmasked: a causal row does not see later tokens`;
  const row = view.parts.rows.get(i), { sheet } = view;
  let [a, b, gap] = [0, 1, 2].map((side) => sheet.at(side, i, j));
  if (a === Infinity) return `${where}\nmasked: this row does not see this key`;
  let known = 'float32';
  if (row) [a, b, gap] = [row[0][j], row[1][j], row[1][j] - row[0][j]];
  else if (sheet.factor > 1) known = `largest of ${sheet.factor} \u00d7 ${sheet.factor} token pairs`;
  else known = `\u00b1 ${sheet.error(i, j).toExponential(0)} (${view.header.tiles ? 'rest for' : 'click a row for'} float32)`;
  const digits = (value) => (Number.isNaN(value) ? 'not finite'
    : value && Math.abs(value) < 1e-4 ? value.toExponential(3) : value.toFixed(6)).padEnd(10);
  if (view.header.single) return `${where}\n${titles[0]} ${digits(a)}   ${known}`;
  return `${where}\n${titles[0]} ${digits(a)}   ${titles[1]} ${digits(b)}   difference ${gap > 0 ? '+' : ''}${digits(gap)}   ${known}`;
}
