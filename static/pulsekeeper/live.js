// Keeps pages up to date and shows a notice if that fails: the server does not answer, the session ended, or the object
// was deleted. All requests of our scripts go through `ask`; those of htmx are observed below.
import { clock, localise } from "./times.js";

const WAIT_MS = 10_000; // request timeout
const EVERY_MS = 15_000;
const FOLLOWED_MS = 30_000; // while the stream of changes is open
const RETRY_MS = 5_000; // after a failure
const REFUSED_MS = 15_000; // after the stream of changes was refused
const ANNOUNCED_MS = 5_000;

let state = "fresh";
let updated = new Date();
let sameAccount = true;
let leaving = false; // browsers abort requests when they leave the page
let followed = false; // the stream of changes is open
const loops = [];

let clearing;

// Announces a text to screen readers; `shown` also displays it. It is removed later, so that the same text can be
// announced again.
export function announce(text, { shown = false } = {}) {
  const region = document.getElementById("announcements");
  clearTimeout(clearing);
  region.textContent = text;
  region.className = shown ? "toast" : "sr-only";
  clearing = setTimeout(() => {
    region.textContent = "";
    region.className = "sr-only";
  }, ANNOUNCED_MS);
}

// "fresh", or the name of a message in partials/connection.html.
function report(found) {
  const before = state;
  state = found === "fresh" && !sameAccount ? "other" : found;
  if (state === "fresh") updated = new Date();
  if (state === before) return;
  const notice = document.querySelector("[data-connection]");
  if (!notice) return;
  for (const sentence of notice.children) sentence.hidden = sentence.dataset.state !== state;
  for (const time of notice.querySelectorAll("[data-updated]")) time.textContent = clock(updated);
  document.documentElement.classList.toggle("stale", state !== "fresh");
  if (state !== "fresh" && !loops.length && document.body.dataset.session) keepFresh(session, () => EVERY_MS);
}

function stateOf(status) {
  if (status < 400) return "fresh";
  if (status === 401 || status === 403) return "ended";
  return status === 404 || status === 410 ? "gone" : "lost";
}

// Returns the response with its text, or null after showing the problem.
export async function ask(address, options = {}) {
  let answer, text;
  try {
    const headers = { Accept: "text/html", "HX-Request": "true", ...options.headers };
    answer = await fetch(address, { ...options, headers, signal: AbortSignal.timeout(WAIT_MS) });
    text = await answer.text();
  } catch {
    if (!leaving) report("lost"); // no network, no server, or no answer in time
    return null;
  }
  report(stateOf(answer.status));
  return answer.ok ? { status: answer.status, headers: answer.headers, text } : null;
}

// Calls `refresh` at intervals while the page is visible, and at once when it becomes visible again.
export function keepFresh(refresh, every) {
  let timer;
  let running = false;
  let again = false; // asked for during a refresh, whose answer may lack the latest change
  async function run() {
    again = true;
    if (running) return;
    clearTimeout(timer);
    running = true;
    try {
      while (again) {
        again = false;
        if (!document.hidden) await refresh();
      }
    } finally {
      running = false;
      plan();
    }
  }
  function plan() {
    clearTimeout(timer);
    timer = setTimeout(run, state === "fresh" ? every() : Math.min(every(), RETRY_MS));
  }
  loops.push(run);
  plan();
}

function refreshNow() {
  if (!sameAccount) session();
  for (const run of loops) run();
}

export function usualInterval() {
  return followed ? FOLLOWED_MS : EVERY_MS;
}

// The stream says that something changed, and not what: pages fetch what they show. When it opens, something may have
// changed before.
function hear(word) {
  const before = followed;
  followed = word !== "lost";
  if (followed) refreshNow();
  else if (before) setTimeout(refreshNow, Math.random() * EVERY_MS); // not all pages at once
}

// Opens the stream: `tell` gets "open", "changed" or "lost". Returns a function that ends it.
function listen(tell) {
  let source, timer;
  function open() {
    source = new EventSource("/changes");
    source.onopen = () => tell("open");
    source.onmessage = () => tell("changed");
    source.onerror = () => {
      tell("lost"); // the browser opens a lost connection again, but not a refused one
      if (source.readyState === EventSource.CLOSED) timer = setTimeout(open, REFUSED_MS * (1 + Math.random()));
    };
  }
  open();
  return () => {
    clearTimeout(timer);
    source.close();
  };
}

// One visible page has the stream for all tabs of the browser, which opens only six HTTP/1 connections to a host. The lock
// does not exist over http except on localhost: there each visible page has its own, and the server limits their number.
function follow() {
  const tabs = new BroadcastChannel("changes");
  let visible = null;
  function tell(word) {
    tabs.postMessage(word);
    hear(word);
  }
  function keepOpen(signal) {
    return new Promise((done) => {
      const end = listen(tell);
      signal.addEventListener("abort", () => {
        end();
        tell("lost");
        done();
      });
    });
  }
  function adjust() {
    visible?.abort();
    if (document.hidden) return;
    visible = new AbortController();
    const { signal } = visible;
    if (navigator.locks) navigator.locks.request("changes", { signal }, () => keepOpen(signal)).catch(() => {});
    else keepOpen(signal);
  }
  tabs.onmessage = ({ data }) => hear(data);
  document.addEventListener("visibilitychange", adjust);
  adjust();
}

// Returns whether the user is still signed in to the same account. Updates the CSRF token of all forms, as each sign-in
// creates a new one.
export async function session() {
  const { session: address, user } = document.body.dataset;
  const answer = await ask(address, { headers: { Accept: "application/json" } });
  if (!answer) return false;
  const found = JSON.parse(answer.text);
  sameAccount = found.user === user;
  report("fresh");
  if (!sameAccount) return false;
  for (const input of document.querySelectorAll("input[name=csrfmiddlewaretoken]")) input.value = found.csrf_token;
  document.body.setAttribute("hx-headers", JSON.stringify({ "X-CSRFToken": found.csrf_token }));
  return true;
}

function inUse(part) {
  return part !== null && (part.contains(document.activeElement) || part.querySelector("details[open]") !== null);
}

// [data-poll] is the URL that returns the changes since `seen`; its parts replace the elements with the same ids. The part
// that data-within selects is kept while it is in use, and fetched again afterwards.
let kept = false;

async function poll() {
  for (const asking of document.querySelectorAll("[data-poll]")) {
    const { dataset } = asking;
    const address = new URL(dataset.poll, location.href);
    if (kept && !inUse(document.querySelector(dataset.within))) address.searchParams.delete("seen");
    const answer = await ask(address);
    // If another answer has replaced the element, this one is older.
    if (answer?.status !== 200 || !asking.isConnected) continue;
    const parts = new DOMParser().parseFromString(answer.text, "text/html");
    kept = "within" in dataset && inUse(document.querySelector(dataset.within));
    if (kept) parts.querySelector(dataset.within)?.remove();
    window.htmx.swap(document.body, parts.body.innerHTML, { swapStyle: "none" });
  }
}

// [data-refetch] is a part that is replaced from a new copy of the page.
const fetched = new Map();

async function refetch() {
  const answer = await ask(location.href);
  if (!answer) return;
  const page = new DOMParser().parseFromString(answer.text, "text/html");
  for (const shown of document.querySelectorAll("[data-refetch]")) {
    const fresh = page.getElementById(shown.id);
    if (!fresh || inUse(shown) || fetched.get(shown.id) === fresh.outerHTML) continue;
    fetched.set(shown.id, fresh.outerHTML);
    shown.replaceWith(fresh);
    localise(fresh);
  }
}

function pollEvery() {
  return Number(document.querySelector("[data-poll]")?.dataset.every ?? usualInterval());
}

if (document.querySelector("[data-poll]")) keepFresh(poll, pollEvery);
if (document.querySelector("[data-refetch]")) keepFresh(refetch, usualInterval);

if (document.querySelector("[data-live]") && "session" in document.body.dataset) follow();

document.addEventListener("visibilitychange", refreshNow);
document.addEventListener("poll", refreshNow); // by an answer's HX-Trigger header
addEventListener("online", refreshNow);
addEventListener("beforeunload", () => {
  leaving = true;
  setTimeout(() => (leaving = false), WAIT_MS); // a download does not leave the page
});
addEventListener("offline", () => report("lost"));

document.addEventListener("htmx:sendError", () => report("lost"));
document.addEventListener("htmx:timeout", () => report("lost"));
document.addEventListener("htmx:afterRequest", (event) => {
  if (event.detail.successful) report("fresh");
});
document.addEventListener("htmx:responseError", (event) => {
  const { xhr } = event.detail;
  const reason = xhr.getResponseHeader("Content-Type")?.startsWith("text/plain") ? xhr.responseText : "";
  if (xhr.status === 401 || xhr.status >= 500) report(stateOf(xhr.status));
  else announce(reason || "The request failed. Reload the page and try again.", { shown: true });
});
