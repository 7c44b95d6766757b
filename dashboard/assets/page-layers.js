/* One listener for the whole module tree of the page Layers: a callback for each line would be slow. */
document.addEventListener("click", (event) => {
  const line = event.target.closest(".layers-line");
  if (!line || line.tagName !== "BUTTON") return;
  const asked = { module: line.dataset.module ?? null, site: line.dataset.site ?? null, at: Date.now() };
  window.dash_clientside.set_props("layers-asked", { data: asked });
});
