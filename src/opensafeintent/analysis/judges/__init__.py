"""What results owe to who graded: each judge's own, how far judges agree, their noise, and conflicts of interest."""
