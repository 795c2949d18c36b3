"""The OpenAPI documents, and what writes and checks them. Nothing in here is imported by the program."""
