// A separate file, because the page's Content-Security-Policy blocks inline scripts.
window.addEventListener("load", () => {
  SwaggerUIBundle({
    url: document.getElementById("docs").dataset.schema,
    dom_id: "#docs",
    deepLinking: true,
    defaultModelsExpandDepth: 0,
    validatorUrl: null,
  });
});
