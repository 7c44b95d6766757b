/* How the list of runs shows its cells, and that Enter on a row opens the run. Text is text here: nothing is markup. */
window.dashAgGridComponentFunctions = Object.assign(window.dashAgGridComponentFunctions || {}, {
  RunsName: (props) => {
    const { href, name } = props.data;
    if (!href) return React.createElement("span", null, name);
    return React.createElement("a", { href, className: "link", tabIndex: -1, onClick: (e) => {
      if (!e.ctrlKey && !e.metaKey && !e.shiftKey && e.button === 0) e.preventDefault(); // the row itself opens it
    } }, name);
  },
  RunsBadge: (props) => {
    if (!props.value) return null;
    const tone = props.data[props.colDef.field + "_tone"];
    const pulse = tone === "live" ? [React.createElement("span", { key: "pulse", className: "pulse" })] : [];
    return React.createElement("span", { className: "badge badge-" + (tone === "live" ? "good" : tone) }, ...pulse, props.value);
  },
});

document.addEventListener("keydown", (event) => {
  const cell = event.key === "Enter" && event.target.closest && event.target.closest("#runs-table .ag-cell");
  if (cell) cell.click();
});
