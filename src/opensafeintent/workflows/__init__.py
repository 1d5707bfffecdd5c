"""What each command does, as one function each: the public API, whose names `opensafeintent` itself
lists.
"""
