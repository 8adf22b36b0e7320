/* What a canvas takes from the page that it lies on, and what it gives to whoever reads it. */

const VERMILION = '#d55e00'; // Okabe and Ito's: seen on every colour of both scales, and on either page
const MARK = '#e69f00'; // of marked tokens, as on every page
const MAGENTA = [204, 121, 167]; // of a cell whose number is not finite

/* The colours and fonts that Streamlit's theme gives to components, read afresh so that light and dark both work. */
function readTheme(element) {
  const style = getComputedStyle(element);
  const read = (name, otherwise) => style.getPropertyValue(name).trim() || otherwise;
  return {
    background: read('--st-background-color', '#ffffff'),
    text: read('--st-text-color', '#31333f'),
    border: read('--st-border-color', '#d3d4d9'),
    accent: read('--st-primary-color', VERMILION),
    font: read('--st-font', 'sans-serif').replaceAll('"', "'"),
  };
}

/* A download; the address is let go of once the browser has surely begun to read it. */
function save(blob, name) {
  const anchor = document.createElement('a');
  anchor.href = URL.createObjectURL(blob);
  anchor.download = name;
  anchor.click();
  setTimeout(() => URL.revokeObjectURL(anchor.href), 2000);
}
