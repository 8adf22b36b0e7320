// Reports the kind of the page's ground (dark or light) when it is no longer the one that Python last knew.

const EVERY = 700; // milliseconds

export default function ({ data, parentElement, setStateValue }) {
  const host = parentElement.host ?? parentElement;
  let known = data;
  const timer = setInterval(() => {
    const shown = kind(getComputedStyle(host).getPropertyValue("--st-background-color"));
    if (shown && shown !== known) setStateValue("theme", (known = shown));
  }, EVERY);
  return () => clearInterval(timer);
}

function kind(colour) {
  const hex = /^\s*#([0-9a-f]{6})/i.exec(colour)?.[1];
  if (!hex) return null;
  const [red, green, blue] = [0, 2, 4].map((start) => parseInt(hex.slice(start, start + 2), 16));
  return 0.299 * red + 0.587 * green + 0.114 * blue < 128 ? "dark" : "light";
}
