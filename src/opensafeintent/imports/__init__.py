"""Files of responses that were made elsewhere, a module a format."""
