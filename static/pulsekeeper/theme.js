// Loaded before the page renders, to avoid a flash of the other theme.
(() => {
  try {
    const chosen = localStorage.getItem("theme");
    if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
  } catch {
    // Without storage the system preference applies.
  }
})();
