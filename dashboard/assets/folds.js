/* Folds (details with data-fold) stay as one left them when the server draws their place anew. */
(() => {
  const left = new Map();
  document.addEventListener("toggle", (event) => {
    const key = event.target.dataset && event.target.dataset.fold;
    if (key) left.set(key, event.target.open);
  }, true);
  new MutationObserver((changes) => {
    if (!left.size) return;
    for (const { addedNodes } of changes) {
      for (const node of addedNodes) {
        if (!node.querySelectorAll) continue;
        const folds = node.matches("details[data-fold]") ? [node] : node.querySelectorAll("details[data-fold]");
        for (const fold of folds) if (left.has(fold.dataset.fold)) fold.open = left.get(fold.dataset.fold);
      }
    }
  }).observe(document.documentElement, { childList: true, subtree: true });
})();
