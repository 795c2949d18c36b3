"""What a user reads; `reference` holds what is written from the code."""
