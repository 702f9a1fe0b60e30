"""Errors that are the user's to solve; the runner prints each as one line."""


class UserError(Exception):
    """Bad input; the message says what to do."""


class NotSupported(UserError, NotImplementedError):
    """Isaac Lab asked for something that this package does not have; the message names it."""


class AssetNotFound(UserError, FileNotFoundError):
    """No URDF or MJCF is known for a robot; the message has the names that were tried."""
