// Times in the reader's zone; the UTC stays in the title. Without this script the page shows UTC.
const absolute = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "short" });
const day = new Intl.DateTimeFormat(undefined, { dateStyle: "medium" });
const relative = new Intl.RelativeTimeFormat(undefined, { numeric: "auto", style: "short" });
const steps = [
  ["second", 60],
  ["minute", 60],
  ["hour", 24],
  ["day", 30],
  ["month", 12],
  ["year", Infinity],
];

function ago(moment) {
  let distance = (moment - Date.now()) / 1000;
  for (const [unit, size] of steps) {
    if (Math.abs(distance) < size) return relative.format(Math.trunc(distance), unit);
    distance /= size;
  }
  return "";
}

function show(time) {
  const moment = new Date(time.dateTime);
  if (Number.isNaN(moment.getTime())) return;
  if (time.dataset.time === "ago") time.textContent = ago(moment);
  else if (time.dataset.time === "day") time.textContent = day.format(moment);
  else time.textContent = absolute.format(moment);
}

export function localise(root = document) {
  for (const time of root.querySelectorAll("time[data-time]")) show(time);
}

localise();
document.addEventListener("htmx:load", (event) => localise(event.target.parentElement ?? document));
setInterval(() => {
  for (const time of document.querySelectorAll('time[data-time="ago"]')) show(time);
}, 30_000);
