"""The specification, `../shared/spec/rest-api.md`, sentence by sentence: a module for each of its sections."""
