"""Each command as one function: the public API, whose names `opensafeintent` itself lists."""
