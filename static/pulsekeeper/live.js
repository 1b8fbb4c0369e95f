// Parts of a page that htmx keeps fresh: [data-poll] is asked every so often, while the page is looked at and nobody
// works in what it replaces, which is what the attribute selects.
const EVERY = 15_000;

function inUse(selector) {
  const part = document.querySelector(selector);
  return part !== null && (part.contains(document.activeElement) || part.querySelector("details[open]") !== null);
}

function poll() {
  if (document.hidden) return;
  for (const asking of document.querySelectorAll("[data-poll]")) {
    if (!inUse(asking.dataset.poll)) window.htmx.trigger(asking, "poll");
  }
}

setInterval(poll, EVERY);
document.addEventListener("visibilitychange", poll);
