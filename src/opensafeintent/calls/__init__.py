"""Calls to models: the ledger, the client, providers, baselines and replay."""
