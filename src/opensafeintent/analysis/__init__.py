"""What finds numbers: groups of comparable models, their estimates by model and stratum, judges,
correction.
"""
