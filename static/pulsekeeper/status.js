// A status page: details of each day, and an update every minute. Without it the page shows everything except days.
import { ask, keepFresh } from "./live.js";
import { dayInUtc, localise } from "./times.js";

const DAYS = 90;
const EVERY_MS = 60_000;

// `12:99.65 14:0 20-30:-`: days below 100 %, with their uptime; "-" means not observed.
function daysOf(details) {
  const uptimes = new Array(DAYS).fill("100");
  for (const part of details.dataset.days.split(" ").filter(Boolean)) {
    const [place, uptime] = part.split(":");
    const [from, to = from] = place.split("-").map(Number);
    uptimes.fill(uptime, from, to + 1);
  }
  const first = new Date(`${details.closest("[data-first]").dataset.first}T00:00:00Z`);
  return uptimes.map((uptime, index) => {
    const date = new Date(first);
    date.setUTCDate(date.getUTCDate() + index);
    return { uptime, text: `${dayInUtc(date)}: ${uptime === "-" ? "not observed" : `${uptime} % uptime`}` };
  });
}

let tip;
function hideTip() {
  tip?.remove();
  tip = undefined;
}

function showTip(event) {
  const bars = event.target.closest?.(".bars");
  if (!bars) return hideTip();
  const box = bars.getBoundingClientRect();
  const index = Math.min(DAYS - 1, Math.max(0, Math.floor(((event.clientX - box.left) / box.width) * DAYS)));
  const found = daysOf(bars.closest("details"))[index];
  if (tip?.parentElement !== bars) {
    hideTip();
    tip = document.createElement("span");
    tip.className = "tip";
    tip.setAttribute("aria-hidden", "true"); // the list below has the same data as text
    bars.append(tip);
  }
  tip.textContent = found.text;
  const left = ((index + 0.5) / DAYS) * box.width - tip.offsetWidth / 2;
  tip.style.left = `${Math.min(box.width - tip.offsetWidth, Math.max(0, left))}px`;
}

// Lists the days as text when the details are opened.
function listDays(details) {
  if (!details.open || details.querySelector(".days")) return;
  const days = daysOf(details);
  const bad = days.filter((day) => day.uptime !== "100" && day.uptime !== "-").reverse();
  const unseen = days.filter((day) => day.uptime === "-").length;
  const list = document.createElement("ul");
  list.className = "days";
  const lines = bad.length ? bad.map((day) => day.text) : ["Up on every observed day."];
  if (unseen) lines.push(`${unseen} of ${DAYS} days were not observed.`);
  for (const line of lines) {
    const item = document.createElement("li");
    item.textContent = line;
    list.append(item);
  }
  details.append(list);
}

let etag;
async function refresh() {
  const answer = await ask(location.pathname, { cache: "no-cache" });
  if (!answer || (etag && etag === answer.headers.get("ETag"))) return;
  const fresh = new DOMParser().parseFromString(answer.text, "text/html").querySelector("[data-live]");
  const shown = document.querySelector("[data-live]");
  if (!fresh || !shown) return;
  const before = shown.querySelector("h1").textContent;
  const now = fresh.querySelector("h1").textContent;
  const reading = shown.contains(document.activeElement) || shown.querySelector("details[open]");
  if (reading && now === before) return; // do not replace what the user is reading
  etag = answer.headers.get("ETag");
  shown.replaceWith(fresh);
  localise(fresh);
  if (now !== before) document.querySelector("[data-live-news]").textContent = now;
}

document.addEventListener("pointermove", showTip);
document.addEventListener("pointerdown", showTip);
window.addEventListener("resize", hideTip);
document.addEventListener("toggle", (event) => listDays(event.target), true);
if (document.querySelector("[data-live]")) keepFresh(refresh, () => EVERY_MS);
