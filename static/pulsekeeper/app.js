// Behaviour of every dashboard page: theme switch, navigation, copy buttons, confirmation dialogs.
import "./times.js";
import { announce, session } from "./live.js";

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
    // Without storage the theme applies to this page only.
  }
  nameTheme();
  document.dispatchEvent(new CustomEvent("themechange"));
}

// navigator.clipboard exists only over TLS.
async function write(text) {
  if (navigator.clipboard) {
    await navigator.clipboard.writeText(text);
    return;
  }
  const area = document.createElement("textarea");
  area.value = text;
  document.body.append(area);
  area.select();
  const done = document.execCommand("copy");
  area.remove();
  if (!done) throw new Error("the browser does not copy");
}

async function copy(button) {
  const source = button.dataset.copyFrom && document.querySelector(button.dataset.copyFrom);
  const text = source ? (source.value ?? source.textContent) : button.dataset.copy;
  try {
    await write(text.trim());
  } catch {
    announce("Could not copy. Select the text and copy it yourself.", { shown: true });
    if (source) getSelection().selectAllChildren(source);
    return;
  }
  button.focus();
  button.classList.add("copied");
  setTimeout(() => button.classList.remove("copied"), 2_000);
  announce("Copied", { shown: true });
}

// Shows a confirmation dialog.
function confirmed(question, yesText) {
  const dialog = document.createElement("dialog");
  dialog.className = "dialog";
  const body = document.createElement("form");
  body.method = "dialog";
  body.className = "stack";
  const text = document.createElement("p");
  text.id = "confirm-text";
  text.textContent = question;
  const actions = document.createElement("div");
  actions.className = "row end";
  const no = document.createElement("button");
  no.className = "button";
  no.value = "no";
  no.textContent = "Cancel";
  const yes = document.createElement("button");
  yes.className = "button danger";
  yes.value = "yes";
  yes.textContent = yesText ?? "Yes";
  actions.append(no, yes);
  body.append(text, actions);
  dialog.append(body);
  dialog.setAttribute("aria-labelledby", "confirm-text");
  document.body.append(dialog);
  dialog.showModal();
  return new Promise((resolve) => {
    dialog.addEventListener("close", () => {
      dialog.remove();
      resolve(dialog.returnValue === "yes");
    });
  });
}

const cleared = new WeakSet(); // forms that may be sent
const waiting = new WeakSet(); // forms that are being confirmed or whose session is being checked

// A form with data-confirm asks first. Forms are not sent while the session or the server is gone, because the user would
// lose the input.
function needsSession(form) {
  // Not form.method, which may be a field with that name.
  return form.getAttribute("method") === "post" && "session" in document.body.dataset;
}

async function stillSignedIn() {
  if (await session()) return true;
  announce("Not sent. What you typed is still here.", { shown: true });
  return false;
}

async function send(form, submitter) {
  const asking = submitter?.dataset.confirm ? submitter : form;
  if (asking.dataset.confirm && !(await confirmed(asking.dataset.confirm, asking.dataset.confirmYes))) return;
  if (needsSession(form) && !(await stillSignedIn())) return;
  const button = form.isConnected ? submitter : replacement(submitter);
  if (!form.isConnected && !button) {
    announce("Not sent: the page has changed meanwhile.", { shown: true });
    return;
  }
  const current = form.isConnected ? form : button.form;
  cleared.add(current);
  current.requestSubmit(button);
}

// An update of the page may have replaced a form while its user was asked. Such buttons have ids.
function replacement(submitter) {
  const found = submitter?.id ? document.getElementById(submitter.id) : null;
  return found?.form ? found : null;
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
    const { target: form, submitter } = event;
    if (cleared.delete(form)) return;
    const asks = submitter?.dataset.confirm || form.dataset.confirm;
    if (!asks && (!needsSession(form) || form.hasAttribute("hx-post"))) return;
    event.preventDefault();
    event.stopImmediatePropagation();
    if (waiting.has(form)) return;
    waiting.add(form);
    send(form, submitter).finally(() => waiting.delete(form));
  },
  true,
);

document.addEventListener("htmx:confirm", (event) => {
  const { verb, issueRequest } = event.detail;
  if (verb === "get" || !("session" in document.body.dataset)) return;
  event.preventDefault();
  stillSignedIn().then((alive) => alive && issueRequest(true));
});

// Screen readers announce changes in a live region, not what it contains when the page loads.
for (const region of document.querySelectorAll("[data-messages]")) {
  setTimeout(() => region.replaceChildren(...[...region.children].map((message) => message.cloneNode(true))), 100);
}

nameTheme();
