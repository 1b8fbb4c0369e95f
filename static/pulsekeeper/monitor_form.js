// The monitor form: suggested values, clearing rows, and removing errors when their field changes.
function press(input) {
  for (const chip of document.querySelectorAll(`[data-fills="${input.id}"]`)) {
    chip.setAttribute("aria-pressed", String(chip.dataset.fill === input.value.trim()));
  }
}

function change(input, value) {
  input.value = value;
  input.dispatchEvent(new Event("input", { bubbles: true }));
}

function prepare() {
  for (const chip of document.querySelectorAll("[data-fills]")) press(document.getElementById(chip.dataset.fills));
}

document.addEventListener("click", (event) => {
  const chip = event.target.closest("[data-fill]");
  if (chip) change(document.getElementById(chip.dataset.fills), chip.dataset.fill);
  const clear = event.target.closest("[data-clear-row]");
  if (clear) {
    const row = clear.closest(".repeat");
    for (const input of row.querySelectorAll("input")) change(input, "");
    row.querySelector("select, input").focus();
  }
});

document.addEventListener("input", (event) => {
  const input = event.target;
  if (!input.id) return;
  press(input);
  if (input.getAttribute("aria-invalid") !== "true") return;
  input.removeAttribute("aria-invalid");
  document.getElementById(`${input.id}_error`)?.remove();
});

// A link to a field in a closed section opens the section.
document.addEventListener("click", (event) => {
  const link = event.target.closest(".problems a");
  if (!link) return;
  const target = document.querySelector(link.getAttribute("href"));
  const details = target?.closest("details");
  if (details) details.open = true;
  event.preventDefault();
  target?.scrollIntoView({ block: "center" });
  const input = target?.matches("input, select, textarea") ? target : target?.querySelector("input, select, textarea");
  input?.focus({ preventScroll: true });
});

// The type sets the example of an address, and the kind of the rules that the user has not filled in.
document.addEventListener("change", (event) => {
  if (event.target.name !== "type") return;
  const { example, firstRule } = event.target.dataset;
  document.getElementById("id_url").placeholder = example;
  for (const row of document.querySelectorAll(".rule")) {
    if ([...row.querySelectorAll("input")].every((input) => !input.value)) row.querySelector("select").value = firstRule;
  }
});

document.addEventListener("htmx:load", prepare);
prepare();
