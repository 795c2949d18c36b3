"""The page in a real Chromium, driven over its DevTools protocol."""
