/* Zoom that survives new data (layout.uirevision).

   After a zoom, dcc.Graph of Dash 4 writes the zoomed layout back into its own `figure` and draws that once more. plotly
   takes it for a new figure that asks for these ranges, and so forgets that they are the reader's; the next figure from
   the server then resets them. The echo draws nothing new: it is left out, and plotly's own memory does the rest. */
(() => {
  /* No figure of ours says `autorange: false`: where one does, it is what plotly noted when the reader zoomed. */
  const isEcho = (shown, wanted) => {
    if (!shown || !wanted || shown.uirevision !== wanted.uirevision) return false;
    const zoomed = Object.keys(wanted).filter((name) => /^[xy]axis/.test(name) && wanted[name].autorange === false);
    const same = (name) => shown[name] && JSON.stringify(shown[name].range) === JSON.stringify(wanted[name].range);
    return zoomed.length > 0 && zoomed.every(same);
  };

  const withoutEchoes = (plotly) => {
    const react = plotly.react;
    plotly.react = (graph, figure, ...rest) =>
      isEcho(graph.layout, figure && figure.layout) ? Promise.resolve(graph) : react(graph, figure, ...rest);
    return plotly;
  };

  let held;
  Object.defineProperty(window, "Plotly", {
    configurable: true,
    get: () => held,
    set: (plotly) => {
      held = plotly && plotly.react ? withoutEchoes(plotly) : plotly;
    },
  });
})();
