// Parts of a form that depend on a choice: data-shown-when="monitors=chosen" or "repeats=weekly|monthly".
// Without this script all parts are visible.
function valueOf(form, name) {
  const fields = form.elements[name];
  if (!fields) return "";
  if (fields instanceof RadioNodeList) return fields.value;
  if (fields.type === "checkbox") return fields.checked ? "on" : "";
  return fields.value;
}

function reveal(form) {
  for (const part of form.querySelectorAll("[data-shown-when]")) {
    const [name, values] = part.dataset.shownWhen.split("=");
    part.hidden = !values.split("|").includes(valueOf(form, name));
  }
}

document.addEventListener("change", (event) => {
  if (event.target.form) reveal(event.target.form);
});
document.addEventListener("htmx:load", (event) => {
  for (const form of event.target.querySelectorAll?.("form") ?? []) reveal(form);
});
for (const form of document.forms) reveal(form);
