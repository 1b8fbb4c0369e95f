// The user's time zone: preselected in new forms (data-own-zone), whose times are then in it (data-own-time, in ms), and
// hidden next to times in the same zone (data-unless-zone).
const own = Intl.DateTimeFormat().resolvedOptions().timeZone;

for (const field of document.querySelectorAll("[data-own-zone]")) {
  const { options } = field.list ?? field;
  if (![...options].some((option) => option.value === own)) continue;
  field.value = own;
  for (const time of field.form.querySelectorAll("[data-own-time]")) {
    // Swedes write times as the field does, with a space.
    time.value = new Date(Number(time.dataset.ownTime)).toLocaleString("sv-SE").slice(0, 16).replace(" ", "T");
  }
}

function hide() {
  for (const element of document.querySelectorAll("[data-unless-zone]")) {
    element.hidden = element.dataset.unlessZone === own;
  }
}

document.addEventListener("htmx:load", hide);
hide();
