"""The served kinds: schema, columns, and how an object is made from the live view."""
