"""What people can have of what is kept of them."""
