/* The slider of the page What-if moves its mark in the figure without asking the server. */
window.dash_clientside = window.dash_clientside || {};
window.dash_clientside.whatif = {
  move: (exponent) => {
    const graph = document.querySelector("#whatif-figure .js-plotly-plot");
    if (graph && graph.layout && (graph.layout.shapes || []).length && window.Plotly) {
      window.Plotly.relayout(graph, { "shapes[0].x0": exponent, "shapes[0].x1": exponent });
    }
    const value = 2 ** exponent;
    return exponent < 0 ? `2^${exponent} = 1/${1 / value}` : `2^${exponent} = ${value}`;
  },
};
