"""`get` and `catalog`: an answer without a server, printed once or as it changes."""
