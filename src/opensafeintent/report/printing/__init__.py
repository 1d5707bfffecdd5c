"""Results as the command line prints them."""
