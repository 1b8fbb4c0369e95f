// data-max-bytes on a file or text input: a larger value is refused before it is sent.
function size(input) {
  return input.files ? (input.files[0]?.size ?? 0) : new TextEncoder().encode(input.value).length;
}

document.addEventListener("input", ({ target }) => {
  const limit = Number(target.dataset?.maxBytes);
  if (limit) target.setCustomValidity(size(target) > limit ? target.dataset.tooLarge : "");
});
