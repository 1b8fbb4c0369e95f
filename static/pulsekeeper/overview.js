// The overview: selecting monitors, and updating visible rows without disturbing the user.
import { announce, ask, keepFresh, usualInterval } from "./live.js";
import { localise, number } from "./times.js";

const PAGE = 50; // rows per response

const list = () => document.getElementById("list");
const boxes = () => [...list().querySelectorAll("tbody input[name=monitor]")];

// Selection

function showChosen() {
  const form = list();
  const bulk = form?.querySelector("[data-bulk]");
  if (!bulk) return;
  const all = boxes();
  const chosen = all.filter((box) => box.checked).length;
  const everything = form.querySelector("[data-all]");
  if (chosen < all.length) everything.value = "";
  const count = everything.value ? Number(form.dataset.matching) : chosen;
  bulk.querySelector("[data-chosen]").textContent = number(count);
  const chooseAll = bulk.querySelector("[data-choose-everything]");
  if (chooseAll) chooseAll.hidden = Boolean(everything.value);
  const head = form.querySelector("[data-pick-all]");
  head.checked = chosen > 0 && chosen === all.length;
  head.indeterminate = chosen > 0 && chosen < all.length;
}

function chooseShown(chosen) {
  for (const box of boxes()) box.checked = chosen;
}

let last;

document.addEventListener("click", (event) => {
  const box = event.target.closest("tbody input[name=monitor]");
  if (box) {
    // Shift-click selects a range.
    const all = boxes();
    const [from, to] = [all.indexOf(last), all.indexOf(box)].sort((a, b) => a - b);
    if (event.shiftKey && from >= 0) for (const each of all.slice(from, to + 1)) each.checked = box.checked;
    last = box;
    showChosen();
  } else if (event.target.closest("[data-choose-everything]")) {
    chooseShown(true);
    list().querySelector("[data-all]").value = "1";
    showChosen();
  } else if (event.target.closest("[data-reload]")) {
    reload();
  }
});

document.addEventListener("change", (event) => {
  if (event.target.matches("[data-compact]")) chooseRows(event.target.checked);
  if (!event.target.matches("[data-pick-all]")) return;
  chooseShown(event.target.checked);
  showChosen();
});

// Send one field, as Django refuses forms with too many fields.
document.addEventListener("formdata", (event) => {
  if (event.target.id !== "list") return;
  const chosen = event.formData.getAll("monitor");
  event.formData.delete("monitor");
  if (chosen.length && !event.formData.get("all")) event.formData.set("monitor", chosen.join(","));
});

// Compact rows

function showRows() {
  const box = document.querySelector("[data-compact]");
  if (!box) return;
  box.checked = document.documentElement.dataset.rows === "compact";
  box.closest("label").hidden = false;
}

function chooseRows(compact) {
  if (compact) document.documentElement.dataset.rows = "compact";
  else delete document.documentElement.dataset.rows;
  try {
    if (compact) localStorage.setItem("rows", "compact");
    else localStorage.removeItem("rows");
  } catch {
    // Without storage the choice applies to this page only.
  }
}

showRows();
document.addEventListener("htmx:historyRestore", showRows);
// The box is among the filters, whose form fetches the list again at each input.
document.addEventListener("input", (event) => event.target.matches("[data-compact]") && event.stopPropagation(), true);

// Updates

const visible = new Set();
const watcher = new IntersectionObserver(
  (entries) => {
    for (const { target, isIntersecting } of entries) {
      if (isIntersecting) visible.add(target);
      else visible.delete(target);
    }
  },
  { rootMargin: "200px" },
);

function watch() {
  visible.clear();
  watcher.disconnect();
  for (const row of document.querySelectorAll("#list tr[data-version]")) watcher.observe(row);
}

function reload() {
  const path = list().dataset.query;
  window.htmx.ajax("GET", `${location.pathname}${path}`, { target: "#list", swap: "outerHTML" });
}

function inUse() {
  const form = list();
  return (
    form.contains(document.activeElement) ||
    form.querySelector("tbody input:checked") !== null ||
    document.querySelectorAll("#list tr[data-version]").length > PAGE ||
    scrollY > 400
  );
}

function replaceRow(fresh) {
  const row = document.getElementById(fresh.id);
  if (!row) return;
  [...fresh.cells].forEach((cell, index) => {
    const old = row.cells[index];
    if (index > 0 && !old.contains(document.activeElement)) old.replaceWith(cell);
  });
  row.dataset.version = fresh.dataset.version;
  localise(row);
}

function replaceSummary(fresh) {
  const old = document.getElementById("summary");
  const moved = old.dataset.order !== fresh.dataset.order;
  document.title = fresh.dataset.title;
  if (old.contains(document.activeElement)) {
    old.dataset.content = fresh.dataset.content;
    return;
  }
  old.replaceWith(fresh);
  window.htmx.process(fresh);
  if (!moved) return;
  if (inUse()) document.querySelector("[data-stale]")?.removeAttribute("hidden");
  else reload();
}

async function refresh() {
  const form = list();
  const summary = document.getElementById("summary");
  if (!form || !summary) return;
  const asked = new URLSearchParams(form.dataset.query);
  asked.set("content", summary.dataset.content);
  for (const row of [...visible].slice(0, 100)) asked.append("row", `${row.id}:${row.dataset.version}`);
  const answer = await ask(`${form.dataset.live}?${asked}`);
  if (answer?.status !== 200) return;
  const fresh = new DOMParser().parseFromString(answer.text, "text/html");
  for (const row of fresh.querySelectorAll("tr[data-version]")) replaceRow(row);
  replaceSummary(fresh.getElementById("summary"));
}

// Rows loaded by htmx

document.addEventListener("htmx:afterSettle", (event) => {
  const form = list();
  if (!form) return;
  watch();
  showChosen();
  if (event.target.id !== "list") return;
  const state = document.querySelector("[data-filters] input[name=state]");
  const query = new URLSearchParams(form.dataset.query);
  if (state) state.value = query.get("state") ?? "";
  const count = document.querySelector("[data-tag-count]");
  if (count) count.textContent = query.getAll("tag").length || "";
  announce(`${number(Number(form.dataset.matching))} monitors`);
});

if (list()) {
  watch();
  showChosen();
  keepFresh(refresh, usualInterval);
}
