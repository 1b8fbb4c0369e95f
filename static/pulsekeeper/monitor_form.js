// The monitor form: suggestions, tags, clearing rows, the address of its parts, and removing errors when a field changes.
function press(input) {
  for (const chip of document.querySelectorAll(`[data-fills="${input.id}"]`)) {
    chip.setAttribute("aria-pressed", String(chip.dataset.fill === input.value.trim()));
  }
}

function change(input, value) {
  input.value = value;
  input.dispatchEvent(new Event("input", { bubbles: true }));
}

// The address that the server will make of host and port, or name, record type and resolver.
const PARTS = ["url", "port", "encryption", "record_type", "resolver"];

function part(name) {
  return document.getElementById(`id_${name}`);
}

function kind() {
  return document.querySelector('[name="type"]:checked, [name="type"][type="hidden"]').dataset;
}

function showAddress() {
  const { scheme, parts, takesHost } = kind();
  if (takesHost === undefined) return;
  const [url, port, encryption, type, resolver] = PARTS.map((name) => part(name).value.trim());
  const host = /^[0-9a-f.]*:[0-9a-f.]*:[0-9a-f:.]*$/i.test(url) ? `[${url}]` : url;
  let address = "";
  if (url.includes("://")) address = url;
  else if (url && scheme === "dns") address = `dns:${resolver && `//${resolver}/`}${url}?type=${type}`;
  else if (url && parts.includes("encryption") && encryption) {
    address = `tls://${host}:${port}${encryption === "tls" ? "" : `?starttls=${encryption}`}`;
  } else if (url) address = `${scheme}://${host}${parts.includes("port") ? `:${port}` : ""}`;
  document.getElementById("address").textContent = address;
}

// A pasted `host:22` or `tls://host:993` fills the fields beside the host.
function takeApart(input) {
  const { parts, takesHost } = kind();
  const found = /^["'\s]*(?:([a-z]+):\/\/)?([^\s:/?"']+|\[[0-9a-f:.]+\]):(\d+)["'\s]*$/i.exec(input.value);
  if (takesHost === undefined || !parts.includes("port") || !found) return;
  const [, scheme, host, port] = found;
  if (parts.includes("encryption") && scheme) change(part("encryption"), scheme.toLowerCase() === "tls" ? "tls" : "");
  change(part("port"), port);
  change(input, host.replace(/[[\]]/g, ""));
}

// The browser completes a whole value: offer what is typed before the last comma, and a tag after it.
let tagNames;

function completeTags(input) {
  const options = document.getElementById("tag-names");
  tagNames ??= [...options.options].map((option) => option.value);
  const before = input.value.slice(0, input.value.lastIndexOf(",") + 1);
  const taken = new Set(before.split(",").map((tag) => tag.trim().toLowerCase()));
  const free = tagNames.filter((name) => !taken.has(name.toLowerCase()));
  options.replaceChildren(...free.map((name) => new Option("", before ? `${before} ${name}` : name)));
}

function prepare() {
  showAddress();
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
  if (PARTS.includes(input.name)) showAddress();
  if (input.name === "tags") completeTags(input);
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
  if (event.target.name === "url") takeApart(event.target);
  if (event.target.name !== "type") return;
  showAddress();
  const { example, firstRule } = event.target.dataset;
  document.getElementById("id_url").placeholder = example;
  for (const row of document.querySelectorAll(".rule")) {
    if ([...row.querySelectorAll("input")].every((input) => !input.value)) row.querySelector("select").value = firstRule;
  }
});

// A test run completes an address. Store the one that was tested, unless the user changed it meanwhile.
document.addEventListener("htmx:load", (event) => {
  const url = event.target.dataset.completed;
  if (url && kind().takesHost === undefined && url.includes(part("url").value.trim())) part("url").value = url;
  prepare();
});
prepare();
