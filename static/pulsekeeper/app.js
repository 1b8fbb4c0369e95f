// What every page of the dashboard can do: switch the theme, open the navigation, copy, ask before something is lost.
import "./times.js";

const root = document.documentElement;
const themes = ["system", "light", "dark"];

function currentTheme() {
  return root.dataset.theme ?? "system";
}

function nameTheme() {
  for (const button of document.querySelectorAll("[data-theme-switch]")) {
    const label = button.querySelector("[data-theme-name]");
    if (label) label.textContent = currentTheme();
  }
}

function switchTheme() {
  const next = themes[(themes.indexOf(currentTheme()) + 1) % themes.length];
  if (next === "system") delete root.dataset.theme;
  else root.dataset.theme = next;
  try {
    if (next === "system") localStorage.removeItem("theme");
    else localStorage.setItem("theme", next);
  } catch {
    // It holds for this page only where storage is forbidden.
  }
  nameTheme();
  document.dispatchEvent(new CustomEvent("themechange"));
}

function announce(text) {
  const region = document.getElementById("announcements");
  if (region) region.textContent = text;
}

async function copy(button) {
  const source = button.dataset.copyFrom && document.querySelector(button.dataset.copyFrom);
  const text = source ? (source.value ?? source.textContent) : button.dataset.copy;
  const label = button.querySelector("[data-copy-label]") ?? button;
  const before = label.textContent;
  try {
    await navigator.clipboard.writeText(text.trim());
    announce("Copied");
    if (label !== button) label.textContent = "Copied";
  } catch {
    announce("Could not copy: select the text and copy it by hand");
    if (source) getSelection().selectAllChildren(source);
    return;
  }
  setTimeout(() => {
    if (label !== button) label.textContent = before;
  }, 2000);
}

// A form with data-confirm asks once, in a dialog; without scripts it is sent as it is.
function confirmFirst(form, submitter) {
  const dialog = document.createElement("dialog");
  dialog.className = "dialog";
  const body = document.createElement("form");
  body.method = "dialog";
  body.className = "stack";
  const text = document.createElement("p");
  text.id = "confirm-text";
  text.textContent = submitter?.dataset.confirm ?? form.dataset.confirm;
  const actions = document.createElement("div");
  actions.className = "row end";
  const no = document.createElement("button");
  no.className = "button";
  no.value = "no";
  no.textContent = "Cancel";
  const yes = document.createElement("button");
  yes.className = "button danger";
  yes.value = "yes";
  yes.textContent = submitter?.dataset.confirmYes ?? form.dataset.confirmYes ?? "Yes";
  actions.append(no, yes);
  body.append(text, actions);
  dialog.append(body);
  dialog.setAttribute("aria-labelledby", "confirm-text");
  dialog.addEventListener("close", () => {
    dialog.remove();
    if (dialog.returnValue !== "yes") return;
    form.dataset.confirmed = "yes";
    form.requestSubmit(submitter ?? undefined);
  });
  document.body.append(dialog);
  dialog.showModal();
}

document.addEventListener("click", (event) => {
  const button = event.target.closest("[data-copy], [data-copy-from], [data-theme-switch], [data-nav-toggle]");
  if (button?.matches("[data-theme-switch]")) switchTheme();
  else if (button?.matches("[data-nav-toggle]")) {
    const open = button.closest(".sidebar").classList.toggle("open");
    button.setAttribute("aria-expanded", String(open));
  } else if (button) copy(button);
  for (const menu of document.querySelectorAll("details.menu[open]")) {
    if (!menu.contains(event.target)) menu.open = false;
  }
});

document.addEventListener("keydown", (event) => {
  if (event.key !== "Escape") return;
  for (const menu of document.querySelectorAll("details.menu[open]")) {
    menu.open = false;
    menu.querySelector("summary").focus();
  }
});

document.addEventListener(
  "submit",
  (event) => {
    const form = event.target;
    const asked = form.dataset.confirm || event.submitter?.dataset.confirm;
    if (!asked || form.dataset.confirmed === "yes") {
      delete form.dataset.confirmed;
      return;
    }
    event.preventDefault();
    event.stopImmediatePropagation();
    confirmFirst(form, event.submitter);
  },
  true,
);

nameTheme();
