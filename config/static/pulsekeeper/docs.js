// Beside the page and not in it: its Content-Security-Policy runs no inline script.
window.addEventListener("load", () => {
  SwaggerUIBundle({
    url: document.getElementById("docs").dataset.schema,
    dom_id: "#docs",
    deepLinking: true,
    defaultModelsExpandDepth: 0,
    validatorUrl: null,
  });
});
