"""The views of the dashboard, one module each; `shell` is the frame around them."""
