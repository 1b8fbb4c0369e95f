// The user's time zone: preselected in new forms (data-own-zone), and hidden next to times in the same zone
// (data-unless-zone).
const own = Intl.DateTimeFormat().resolvedOptions().timeZone;

for (const field of document.querySelectorAll("[data-own-zone]")) {
  const { options } = field.list ?? field;
  if ([...options].some((option) => option.value === own)) field.value = own;
}

function hide() {
  for (const element of document.querySelectorAll("[data-unless-zone]")) {
    element.hidden = element.dataset.unlessZone === own;
  }
}

document.addEventListener("htmx:load", hide);
hide();
