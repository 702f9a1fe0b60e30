"""What stands in for Omniverse's stage and application."""
