/* What the reader does with the scene. */

/* A drag turns, with shift or the right button it moves; the wheel zooms, a click chooses, a double click shows all. */
function listen(view) {
  const { canvas } = view;
  let grip = null;
  canvas.addEventListener('pointerdown', (event) => {
    grip = { x: event.clientX, y: event.clientY, moved: 0, pan: event.shiftKey || event.button === 2 };
    canvas.setPointerCapture(event.pointerId);
  });
  canvas.addEventListener('pointermove', (event) => {
    if (!grip) return view.hover(view.under(event), event);
    const [dx, dy] = [event.clientX - grip.x, event.clientY - grip.y];
    grip.moved += Math.abs(dx) + Math.abs(dy);
    [grip.x, grip.y] = [event.clientX, event.clientY];
    return view.move(grip.pan, dx, dy);
  });
  canvas.addEventListener('pointerup', (event) => {
    if (grip && grip.moved < 4 && event.button === 0) view.choose(view.under(event));
    grip = null;
  });
  canvas.addEventListener('pointercancel', () => { grip = null; });
  canvas.addEventListener('pointerleave', () => view.hover(-1));
  canvas.addEventListener('contextmenu', (event) => event.preventDefault());
  canvas.addEventListener('dblclick', () => view.press('fit'));
  canvas.addEventListener('wheel', (event) => {
    event.preventDefault();
    view.camera.magnify(Math.exp(-0.001 * event.deltaY));
    view.refresh();
  }, { passive: false });
  canvas.addEventListener('keydown', (event) => pressKey(view, event));
  canvas.addEventListener('webglcontextlost', (event) => {
    event.preventDefault();
    view.fail('The graphics context was lost: the browser took it back. It returns by itself, or reload the page.');
  });
  canvas.addEventListener('webglcontextrestored', () => {
    view.fault.style.display = 'none';
    view.start();
    view.scene?.upload(view.glyphs.instances);
    view.refresh();
  });
}

/* Arrows turn, with shift they move; + and - zoom, 0 shows all. */
function pressKey(view, event) {
  const step = { ArrowLeft: [-16, 0], ArrowRight: [16, 0], ArrowUp: [0, -16], ArrowDown: [0, 16] }[event.key];
  const zoom = { '+': 1.1, '=': 1.1, '-': 1 / 1.1 }[event.key];
  if (!step && !zoom && event.key !== '0') return;
  event.preventDefault();
  if (step) view.move(event.shiftKey, ...step);
  else if (zoom) view.camera.magnify(zoom);
  else view.camera.reset();
  view.refresh();
}
