"""Human annotation: forms for annotators, their returns, and their agreement."""
