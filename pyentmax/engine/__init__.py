"""How any call runs: its arguments (`calls`), who computes (`backends`), the process (`system`)."""
