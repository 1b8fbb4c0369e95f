"""Import monitors from other products: one pure module per product, and `creating`, which writes."""
