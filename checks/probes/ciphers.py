"""The ciphers that probes offer, over both TLS libraries."""

# OpenSSL's default without finite-field Diffie-Hellman of TLS 1.2. There the server chooses the group, and a handshake
# with 10,000 bits took 0.7 s of CPU, during which all other checks of the loop wait.
CIPHERS = "DEFAULT:!kDHE:@SECLEVEL=2"
