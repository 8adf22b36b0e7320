/* Where the maps stand on the page, in CSS pixels. */

const TOP = 72, STRIP = 54, GAP = 10; // above a map, right of it, between panels
const BARE = 12; // left of a map whose rows are named by the panel beside it
const SIDE_BY_SIDE = 700; // a narrower page stacks the panels
const LARGEST = 560; // of a map, so that it fits a screen
const COLUMN_SIDE = 150; // of a map in a journal's column: three of them, stacked, fit a page of 9 in
const LABELS_FROM = 9; // of a cell: below it, ticks are numbers

/* Sizes for the room there is: side by side only the first panel names its rows; stacked, every panel does. */
function arrange(view, theme, column = null) {
  const longest = (tokens, span) => { // the page's margins stay when one zooms
    const numbered = column && COLUMN_SIDE / span < LABELS_FROM;
    return numbered ? 30 : Math.max(30, widest(view, tokens, theme.font));
  };
  const named = 26 + longest(view.header.tokens, view.span);
  view.bottom = 30 + longest(view.header.keys, view.wide);
  const width = column ?? view.root.clientWidth, together = width >= SIDE_BY_SIDE;
  view.lefts = together ? [named, BARE, BARE] : [named, named, named];
  const room = together && !view.header.single ? (width - named - 2 * BARE - 3 * STRIP - 2 * GAP) / 3 : width - named - STRIP;
  view.side = Math.floor(Math.max(40, Math.min(column ? COLUMN_SIDE : LARGEST, room)));
  view.widths = view.lefts.map((left) => left + view.side + STRIP);
  if (column) return; // an export: what the page shows stays as it is
  const columns = view.widths.map((each) => `${each}px`);
  view.root.querySelector('.panels').style.gridTemplateColumns = together ? columns.join(' ') : columns[0];
  view.canvases.forEach((canvas, index) => {
    Object.assign(canvas.style, { width: columns[index], height: `${TOP + view.side + view.bottom}px` });
  });
}

/* CSS pixels of the longest label, measured once a set of tokens: there may be thousands. */
function widest(view, tokens, font) {
  if (view.measured?.tokens !== tokens || view.measured.font !== font) {
    const pen = document.createElement('canvas').getContext('2d');
    pen.font = `11px ${font}`;
    const labels = [...new Set(tokens.map((token) => label(token)))];
    view.measured = { tokens, font, width: Math.max(...labels.map((text) => pen.measureText(text).width)) };
  }
  return view.measured.width;
}
