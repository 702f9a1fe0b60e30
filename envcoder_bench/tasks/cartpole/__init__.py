"""A cart balances a pole."""
