"""Read exports of other products: one pure module for each."""
