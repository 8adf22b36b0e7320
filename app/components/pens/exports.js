/* A figure as a file, by the pens that draw it on the page. */

const COLUMN = 360; // CSS pixels that become 3.25 in of a journal's column: 11 px are then 7 pt

/* Draw a figure with either pen and save it: "svg", "column" (an SVG of 3.25 in), or "png", which has three device
 * pixels a CSS pixel, for print. */
function exportFigure(kind, width, height, theme, draw, name) {
  if (kind !== 'png') {
    const pen = new VectorPen(width, height, theme), column = kind === 'column';
    if (column) {
      pen.root.setAttribute('width', '3.25in');
      pen.root.setAttribute('height', `${((3.25 * height) / width).toFixed(3)}in`);
    }
    draw(pen);
    const file = `${name}${column ? '-column' : ''}.svg`;
    save(new Blob([new XMLSerializer().serializeToString(pen.root)], { type: 'image/svg+xml' }), file);
  } else {
    const canvas = document.createElement('canvas');
    draw(new CanvasPen(canvas, width, height, 3, theme));
    canvas.toBlob((blob) => save(blob, `${name}.png`));
  }
}
