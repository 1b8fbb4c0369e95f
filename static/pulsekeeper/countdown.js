// Counts down to the time of a [data-countdown], whose value is the server's clock when it rendered the element, in ms.
// So it is right even if the clock of the viewer is not.
const UNITS = [
  ["d", 86_400],
  ["h", 3_600],
  ["min", 60],
  ["s", 1],
];
const skews = new WeakMap();

// The two largest units: "1 d 3 h", "4 min 9 s".
function words(seconds) {
  const first = UNITS.findIndex(([, size]) => seconds >= size);
  let rest = seconds;
  const parts = UNITS.map(([unit, size]) => {
    const count = Math.floor(rest / size);
    rest -= count * size;
    return `${count} ${unit}`;
  });
  return parts.slice(first, first + 2).join(" ");
}

function show(element) {
  if (!skews.has(element)) skews.set(element, Number(element.dataset.countdown) - Date.now());
  const left = Math.ceil((Date.parse(element.dateTime) - Date.now() - skews.get(element)) / 1000);
  element.textContent = left > 0 ? `in ${words(left)}` : "overdue";
}

function update() {
  for (const element of document.querySelectorAll("[data-countdown]")) show(element);
}

document.addEventListener("htmx:load", update);
setInterval(update, 1000);
update();
