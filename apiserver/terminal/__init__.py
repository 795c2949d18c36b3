"""What a person sees: tables, the page of a class, and what is drawn anew while it changes.

Nothing here reads a cluster, or knows where its figures come from.
"""
