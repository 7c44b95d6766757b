// Draws the figures of the report, in the colours that the reader prefers; on paper in light ones.
"use strict";
(() => {
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const colors = JSON.parse(document.getElementById("colors").textContent);
  const pattern = new RegExp(Object.keys(colors).join("|"), "gi");
  const settings = { displaylogo: false, responsive: true, modeBarButtonsToRemove: ["lasso2d", "select2d"] };
  const draw = (inDark, width) => {
    for (const place of document.querySelectorAll(".figure[data-of]")) {
      const text = document.getElementById(place.dataset.of).textContent;
      const figure = JSON.parse(inDark ? text.replace(pattern, (color) => colors[color.toLowerCase()]) : text);
      if (width) figure.layout.width = width;
      try {
        Plotly.react(place, figure.data, figure.layout, settings);
      } catch (error) { // the other figures are worth having
        place.textContent = String(error);
      }
    }
  };
  const usual = () => draw(dark.matches, 0);
  dark.addEventListener("change", usual);
  addEventListener("beforeprint", () => draw(false, 680));
  addEventListener("afterprint", usual);
  usual();
})();
