"""Where users already are: Inspect AI, the Hugging Face hub, Ray."""
