// Loaded before the page renders, to avoid a flash of the other theme or of wider rows.
(() => {
  try {
    const chosen = localStorage.getItem("theme");
    if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
    if (localStorage.getItem("rows") === "compact") document.documentElement.dataset.rows = "compact";
  } catch {
    // Without storage the system preference and the usual rows apply.
  }
})();
