// The user's time zone: preselected in new forms (data-own-zone), and hidden next to times in the same zone
// (data-unless-zone).
const own = Intl.DateTimeFormat().resolvedOptions().timeZone;

for (const select of document.querySelectorAll("select[data-own-zone]")) {
  if ([...select.options].some((option) => option.value === own)) select.value = own;
}
for (const element of document.querySelectorAll("[data-unless-zone]")) {
  element.hidden = element.dataset.unlessZone === own;
}
