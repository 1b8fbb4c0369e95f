"""The http protocol. Its entry is `probe.HttpProbe`; `spec` and `target` are light and need no libcurl."""
