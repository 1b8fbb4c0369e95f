// Long lists: a search field filters items, and checkboxes are selected and counted together.
// data-filter, data-chosen and data-choose-all name the list. They are hidden without this script.
function items(selector) {
  return [...document.querySelectorAll(`${selector} [data-item], ${selector} > li`)];
}

function filter(input) {
  const wanted = input.value.trim().toLowerCase();
  for (const item of items(input.dataset.filter)) item.hidden = !item.textContent.toLowerCase().includes(wanted);
  for (const box of document.querySelectorAll(`[data-choose-all="${input.dataset.filter}"]`)) updateSelectAll(box);
}

function boxes(selector) {
  return [...document.querySelectorAll(`${selector} input[type="checkbox"]:not(:disabled)`)];
}

function shownBoxes(selector) {
  return boxes(selector).filter((box) => !box.closest("[hidden]"));
}

function updateSelectAll(all) {
  const shown = shownBoxes(all.dataset.chooseAll);
  const chosen = shown.filter((box) => box.checked).length;
  all.checked = shown.length > 0 && chosen === shown.length;
  all.indeterminate = chosen > 0 && chosen < shown.length;
}

function count(place) {
  const chosen = boxes(place.dataset.chosen).filter((box) => box.checked).length;
  place.textContent = chosen ? `${chosen} selected` : "None selected";
}

function refresh() {
  for (const all of document.querySelectorAll("[data-choose-all]")) updateSelectAll(all);
  for (const place of document.querySelectorAll("[data-chosen]")) count(place);
}

document.addEventListener("input", (event) => {
  if (event.target.matches("[data-filter]")) filter(event.target);
});

document.addEventListener("change", (event) => {
  const all = event.target.closest("[data-choose-all]");
  if (all) for (const box of shownBoxes(all.dataset.chooseAll)) box.checked = all.checked;
  refresh();
});

// Enter in a search field must not submit the form.
document.addEventListener("keydown", (event) => {
  if (event.key === "Enter" && event.target.matches("[data-filter]")) event.preventDefault();
});

for (const element of document.querySelectorAll("[data-filter], [data-choose-all]")) {
  element.hidden = false;
  const label = element.closest("label");
  if (label) label.hidden = false;
}
document.addEventListener("htmx:afterSettle", refresh); // a list that was fetched again
refresh();
