// Tokens as buttons on coloured ground. Text only through textContent and title: it may hold anything.

export default function ({ data, parentElement, setTriggerValue }) {
  bar(parentElement.querySelector(".bar"), data);
  const strip = parentElement.querySelector(".strip");
  const buttons = data.tokens.map((token, index) => {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = token;
    button.title = describe(data, index);
    button.setAttribute("role", "option");
    button.setAttribute("aria-selected", String(index === data.selected));
    button.style.background = data.colours[index];
    button.style.color = data.inks[index];
    button.classList.toggle("missing", data.colours[index] === "");
    button.classList.toggle("unknown", data.unknown[index]);
    button.classList.toggle("selected", index === data.selected);
    button.classList.toggle("marked", data.marked.includes(index));
    button.onclick = () => setTriggerValue("picked", index);
    return button;
  });
  strip.replaceChildren(...buttons);
}

function bar(element, { title, low, high, stops }) {
  const name = span("name", title);
  const ramp = span("ramp", "");
  ramp.style.background = `linear-gradient(to right, ${stops.join(", ")})`;
  element.replaceChildren(name, span("number", low), ramp, span("number", high));
}

function span(kind, text) {
  const element = document.createElement("span");
  element.className = kind;
  element.textContent = text;
  return element;
}

function describe({ tokens, ids, unknown, values, title, raw, marked }, index) {
  const known = unknown[index] ? ", not a word of the vocabulary" : "";
  const written = raw.length ? `, in the vocabulary ${raw[index]}` : "";
  const mark = marked.includes(index) ? " (marked)" : "";
  return `token ${index}: ${tokens[index]}${mark}\nid ${ids[index]}${written}${known}\n${title}: ${values[index]}`;
}
