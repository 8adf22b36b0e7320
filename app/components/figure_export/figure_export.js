// Saves a Plotly figure as it is seen. Streamlit bundles Plotly without a global, so the figure's own camera button is
// asked: it reads its options from the figure's context and draws from the figure's data and layout (zoom and camera
// included). What is changed for the picture is put back at once, since Plotly copies the layout before it returns.

const COLUMN = 312; // 3.25 in at 96 CSS pixels an inch

const CHOICES = [
  { label: "PNG, 3 × screen", format: "png", scale: 3 },
  { label: "SVG, as seen", format: "svg", scale: 1 },
  { label: "SVG, 3.25 in column", format: "svg", scale: 1, width: COLUMN },
];

export default function ({ data, parentElement }) {
  const bar = parentElement.querySelector(".bar");
  bar.replaceChildren(
    ...CHOICES.map((choice) => {
      const button = document.createElement("button");
      button.type = "button";
      button.textContent = choice.label;
      button.onclick = () => save(data, choice, getComputedStyle(bar));
      return button;
    }),
  );
}

function save({ chart, name }, choice, style) {
  const figure = document.querySelector(`.${CSS.escape(chart)} .js-plotly-plot`);
  const buttons = figure?._fullLayout?._modeBar?.buttons?.flat() ?? [];
  const camera = buttons.find((button) => button.name === "toImage");
  if (!camera) throw new Error(`no figure ${chart} on the page`);
  const { width, height } = figure._fullLayout;
  const narrow = choice.width !== undefined;
  const { layout, _context: context } = figure;
  const options = context.toImageButtonOptions;
  context.toImageButtonOptions = {
    format: choice.format,
    scale: choice.scale,
    width: narrow ? choice.width : width,
    height: narrow ? Math.round(choice.width * Math.min(Math.max(height / width, 0.8), 1)) : height,
    filename: narrow ? `${name}-column` : name,
  };
  const paper = style.getPropertyValue("--st-background-color").trim() || "white";
  figure.layout = { ...layout, paper_bgcolor: paper, updatemenus: [] }; // a picture has no buttons
  if (narrow) Object.assign(figure.layout, small(layout));
  try {
    camera.click(figure);
  } finally {
    figure.layout = layout;
    context.toImageButtonOptions = options;
  }
}

// Type of 7 to 8 points at the width of a journal's column.
function small(layout) {
  const title = layout.title ?? {};
  const slider = layout.sliders?.[0]; // too wide for a column: the title says where it stands
  const at = slider && `${slider.currentvalue?.prefix ?? ""}${slider.steps[slider.active ?? 0].label}`;
  return {
    font: { ...layout.font, size: 9 },
    sliders: [],
    title: {
      ...title,
      text: slider ? `${title.text}<br>${at}` : title.text,
      font: { ...title.font, size: 10 },
      subtitle: { ...title.subtitle, font: { ...title.subtitle?.font, size: 8 } },
    },
    xaxis: narrowAxis(layout.xaxis),
    yaxis: narrowAxis(layout.yaxis),
    margin: { l: 38, r: 8, t: Math.round((layout.margin?.t ?? 44) * 0.75), b: 34 },
  };
}

function narrowAxis(axis) {
  return axis && { ...axis, title: { ...axis.title, font: { size: 9 } }, tickfont: { size: 8 } };
}
