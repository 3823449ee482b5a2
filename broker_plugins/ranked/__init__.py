"""`$where` subscriptions and the k best receivers of a message."""
