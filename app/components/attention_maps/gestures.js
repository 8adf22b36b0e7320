/* What the reader does with the maps. */

/* The wheel zooms at the cursor, a drag pans, a click chooses, a double click shows all. */
function listen(view, canvas) {
  let drag = null;
  canvas.addEventListener('wheel', (event) => {
    if (!cellAt(view, event)) return; // over the margins the page scrolls
    event.preventDefault();
    const factor = Math.exp(event.deltaY * 0.002), span = Math.max(4, Math.min(view.header.tokens.length, view.span * factor));
    const fx = (event.offsetX - view.lefts[view.canvases.indexOf(canvas)]) / view.side, fy = (event.offsetY - TOP) / view.side;
    view.look(view.x0 + fx * (view.wide - span * view.shape), view.y0 + fy * (view.span - span), span);
  }, { passive: false });
  canvas.addEventListener('pointerdown', (event) => {
    drag = { x: event.offsetX, y: event.offsetY, x0: view.x0, y0: view.y0, moved: false };
    canvas.setPointerCapture(event.pointerId);
  });
  canvas.addEventListener('pointermove', (event) => {
    if (!view.header) return;
    const [dx, dy] = drag ? [event.offsetX - drag.x, event.offsetY - drag.y] : [0, 0];
    if (drag && Math.hypot(dx, dy) > 3) drag.moved = true;
    if (drag?.moved) view.look(drag.x0 - (dx / view.side) * view.wide, drag.y0 - (dy / view.side) * view.span, view.span);
    else view.point(cellAt(view, event));
  });
  canvas.addEventListener('pointerup', (event) => {
    const cell = drag && !drag.moved && cellAt(view, event);
    drag = null;
    if (cell) view.choose(...cell);
  });
  canvas.addEventListener('pointerleave', () => !drag && view.point(null));
  canvas.addEventListener('dblclick', () => view.header && view.reset());
  canvas.addEventListener('keydown', (event) => view.header && pressKey(view, event));
}

/* [query, key] under the cursor, or null beside the map. */
function cellAt(view, event) {
  if (!view.lefts) return null;
  const left = view.lefts[view.canvases.indexOf(event.target)];
  const j = Math.floor(view.x0 + ((event.offsetX - left) / view.side) * view.wide);
  const i = Math.floor(view.y0 + ((event.offsetY - TOP) / view.side) * view.span);
  const rows = view.header?.tokens.length ?? 0, columns = view.header?.keys.length ?? 0;
  const within = (at, from) => at >= from && at < from + view.side;
  return within(event.offsetX, left) && within(event.offsetY, TOP) && i < rows && j < columns ? [i, j] : null;
}

/* Arrows move the cursor, Enter chooses, + and - zoom, 0 shows all. */
function pressKey(view, event) {
  const steps = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };
  const [i, j] = view.cursor ?? [0, 0], { tokens, keys } = view.header, step = steps[event.key];
  const clip = (value, several) => Math.min(several.length - 1, Math.max(0, value));
  if (step) view.point([clip(i + step[0], tokens), clip(j + step[1], keys)]);
  else if (event.key === 'Enter') view.choose(i, j);
  else if (event.key === '+' || event.key === '-') {
    const span = view.span * (event.key === '+' ? 0.8 : 1.25);
    view.look(j + 0.5 - (span * view.shape) / 2, i + 0.5 - span / 2, span);
  } else if (event.key === '0') view.reset();
  else return;
  event.preventDefault();
}
