// Formats dates, times and numbers in the language of the page and the user's time zone, in the same order as the
// server, so that a page reads the same with and without scripts.
const language = document.documentElement.lang;
const relative = new Intl.RelativeTimeFormat(language, { numeric: "auto", style: "short" });
const steps = [
  ["second", 60],
  ["minute", 60],
  ["hour", 24],
  ["day", 30],
  ["month", 12],
  ["year", Infinity],
];

function partsIn(timeZone) {
  const format = new Intl.DateTimeFormat(language, {
    day: "numeric",
    month: "short",
    year: "numeric",
    hour: "2-digit",
    minute: "2-digit",
    second: "2-digit",
    hourCycle: "h23",
    timeZone,
  });
  return (moment) => Object.fromEntries(format.formatToParts(moment).map(({ type, value }) => [type, value]));
}

const local = partsIn(undefined);
const utc = partsIn("UTC");

function day({ day, month, year }) {
  return `${day} ${month} ${year}`;
}

// "22 Nov" and "12:03", for axes.
export function shortDay(moment) {
  const { day, month } = local(moment);
  return `${day} ${month}`;
}

export function shortTime(moment) {
  const { hour, minute } = local(moment);
  return `${hour}:${minute}`;
}

// "22 Nov 2026"
export function dayInUtc(moment) {
  return day(utc(moment));
}

// "22 Nov 2026, 12:03"
export function full(moment) {
  return `${day(local(moment))}, ${shortTime(moment)}`;
}

// "22 Nov 2026, 12:03:41", for logs.
export function exact(moment) {
  return `${full(moment)}:${local(moment).second}`;
}

// "12:03:41", with the date unless that is today.
export function clock(moment) {
  const text = exact(moment);
  return day(local(moment)) === day(local(new Date())) ? text.slice(text.indexOf(",") + 2) : text;
}

const numbers = new Intl.NumberFormat(language);

export function number(value) {
  return numbers.format(value);
}

function ago(moment) {
  let distance = (moment - Date.now()) / 1000;
  for (const [unit, size] of steps) {
    if (Math.abs(distance) < size) return relative.format(Math.trunc(distance), unit);
    distance /= size;
  }
  return "";
}

const styles = { ago, day: (moment) => day(local(moment)), full, log: exact };

function show(time) {
  const moment = new Date(time.dateTime);
  if (!Number.isNaN(moment.getTime())) time.textContent = styles[time.dataset.time](moment);
}

export function localise(root = document) {
  for (const time of root.querySelectorAll("time[data-time]")) show(time);
}

localise();
document.addEventListener("htmx:load", (event) => localise(event.target.parentElement ?? document));
setInterval(() => {
  for (const time of document.querySelectorAll('time[data-time="ago"]')) show(time);
}, 30_000);
