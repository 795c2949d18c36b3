"""What clients see of the served API, kept word for word; `pytest --update-golden` writes it anew."""
