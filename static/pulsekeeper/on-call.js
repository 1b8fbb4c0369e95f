// The calendar of a schedule: a link to the viewer's time zone, and spans that are selected with the mouse. A span
// fills the form of overrides; without this script its fields are filled by hand, or by the links of shifts.
const HALF_HOUR = 30 * 60_000;
const own = Intl.DateTimeFormat().resolvedOptions().timeZone;

const link = document.querySelector("[data-to-own-zone]");
if (link && [...document.querySelectorAll("#zone option")].some((option) => option.value === own)) {
  const url = new URL(location);
  if (url.searchParams.get("zone") === own) link.setAttribute("aria-current", "true");
  url.searchParams.set("zone", own);
  link.href = url.pathname + url.search;
  link.append(own.replaceAll("_", " "));
  link.hidden = own === link.dataset.toOwnZone;
}

function local(ms, zone) {
  const parts = new Intl.DateTimeFormat("en-GB", {
    timeZone: zone, year: "numeric", month: "2-digit", day: "2-digit", hour: "2-digit", minute: "2-digit", hourCycle: "h23",
  }).formatToParts(ms);
  const of = (name) => parts.find((part) => part.type === name).value;
  return `${of("year")}-${of("month")}-${of("day")}T${of("hour")}:${of("minute")}`;
}

// The moment at a part of the width, from 0 to 1: each day has a seventh of the width, also days of 23 or 25 hours.
function moment(starts, part) {
  const days = Math.min(Math.max(part, 0), 1) * (starts.length - 1);
  const day = Math.min(Math.floor(days), starts.length - 2);
  const within = (days - day) * (starts[day + 1] - starts[day]);
  return Math.min(starts[day] + Math.round(within / HALF_HOUR) * HALF_HOUR, starts[day + 1]);
}

function fill(form, from, to) {
  form.elements.starts_at.value = local(from, form.dataset.zone);
  form.elements.ends_at.value = local(to, form.dataset.zone);
  form.scrollIntoView({ block: "center" });
  form.elements.user_id.focus({ preventScroll: true });
}

function selectable(svg, form) {
  const starts = svg.dataset.select.split(" ").map(Number);
  const selection = svg.querySelector(".selection");
  let began = null;
  let moved = false;
  const partOf = (event) => {
    const box = svg.getBoundingClientRect();
    return (event.clientX - box.left) / box.width;
  };
  // Links would be dragged away.
  svg.addEventListener("dragstart", (event) => event.preventDefault());
  svg.addEventListener("pointerdown", (event) => {
    if (event.button !== 0 || event.pointerType === "touch") return; // a finger scrolls
    began = partOf(event);
    moved = false;
  });
  svg.addEventListener("pointermove", (event) => {
    if (began === null) return;
    const at = partOf(event);
    if (!moved && Math.abs(at - began) * svg.getBoundingClientRect().width < 4) return;
    if (!moved) svg.setPointerCapture(event.pointerId);
    moved = true;
    const [left, right] = [Math.max(Math.min(began, at), 0), Math.min(Math.max(began, at), 1)];
    selection.setAttribute("x", `${left * 100}%`);
    selection.setAttribute("width", `${(right - left) * 100}%`);
  });
  svg.addEventListener("pointerup", (event) => {
    if (began === null || !moved) {
      began = null;
      return;
    }
    const ends = [moment(starts, began), moment(starts, partOf(event))].sort((a, b) => a - b);
    began = null;
    if (ends[0] < ends[1]) fill(form, ...ends);
  });
  svg.addEventListener("pointercancel", () => {
    began = null;
  });
  // A click on a shift fills its span in, without loading the page again.
  svg.addEventListener("click", (event) => {
    const link = event.target.closest("a[data-from]");
    if (!moved && !link) return;
    event.preventDefault();
    if (!moved) fill(form, Number(link.dataset.from), Number(link.dataset.to));
    moved = false;
  });
}

const form = document.querySelector("#override form[data-zone]");
if (form) for (const svg of document.querySelectorAll("svg[data-select]")) selectable(svg, form);
